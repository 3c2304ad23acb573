// The Wisp proxy of wisp-js behind a plain HTTP server, allowed to dial loopback.
import http from "node:http";
import { logging, server as wisp } from "@mercuryworkshop/wisp-js/server";

// serve listens on host:port and resolves to the bound address, HOST:PORT (port 0 picks a free one).
export async function serve(host, port) {
  logging.set_level(logging.WARN); // per-stream information would be a line for every run
  wisp.options.allow_loopback_ips = true; // the targets of a benchmark are here
  wisp.options.allow_private_ips = true;

  const server = http.createServer((_, response) => response.end("wisp-js\n"));
  server.on("upgrade", (request, socket, head) => wisp.routeRequest(request, socket, head));
  await new Promise((resolve, reject) => {
    server.once("error", (error) => reject(new Error(`listening on ${host}:${port}: ${error.message}`)));
    server.listen(port, host, resolve);
  });
  const bound = server.address();
  return `${bound.family === "IPv6" ? `[${bound.address}]` : bound.address}:${bound.port}`;
}
