// The js-libp2p peer against itself: what docs/peers.md asks of a peer program.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { meet, Peer, runClient } from "./harness.mjs";

const servers = {};

before(() => {
  for (const security of ["noise", "plaintext"]) servers[security] = new Peer("js", ["server", "--listen", "127.0.0.1:0", "--security", security]);
});

after(async () => {
  for (const server of Object.values(servers)) assert.equal(await server.stop(), 0, "SIGTERM ends the server with 0");
});

const runs = [
  { protocol: "/perf/0.1.0", bytes: 5_000_001 },
  { protocol: "/perf/1.0.0", bytes: 5_000_001 },
  { protocol: "/perf/1.0.0", bytes: 1 },
  { protocol: "/perf/1.0.0", bytes: 5_000_001, download: true },
  { protocol: "/perf/1.0.0", seconds: 0.3 },
  { protocol: "/perf/0.1.0", seconds: 0.3 },
  { protocol: "/perf/1.0.0", seconds: 0.3, download: true },
  { protocol: "/perf/0.1.0", bytes: 5_000_003, streams: 5, connections: 3 },
  { protocol: "/perf/1.0.0", bytes: 5_000_003, streams: 70, download: true },
  { protocol: "/perf/1.0.0", bytes: 5_000_003, streams: 40, connections: 7 },
];

for (const security of ["noise", "plaintext"])
  for (const run of runs) test(`${security} ${JSON.stringify(run)}`, () => meet(servers[security], "js", { security, ...run }));

const refused = [
  { args: ["--protocol", "/perf/2.0.0"], code: 127, message: /protocol \/perf\/2\.0\.0/ },
  { args: ["--protocol", "/perf/0.1.0", "--download"], code: 127, message: /no download/ },
  { args: ["--security", "tls"], code: 127, message: /security tls/ },
  { args: ["--security", "plaintext"], code: 1, message: /^dial / },
  { args: ["--connect", "127.0.0.1:1"], code: 1, message: /^dial .*ECONNREFUSED/ },
  { args: ["--connect", "somewhere"], code: 2, message: /HOST:PORT/ },
  { args: ["--block", "0"], code: 2, message: /--block/ },
  { args: ["--colour", "red"], code: 2, message: /colour/ },
];

for (const { args, code, message } of refused)
  test(`${args.join(" ")} ends with ${code}`, async () => {
    const { code: seen, line } = await runClient("js", ["--connect", await servers.noise.address(), "--bytes", "1", ...args]);
    assert.equal(seen, code);
    assert.equal(line.event, "error");
    assert.match(line.message, message);
  });

test("host:port without a peer id is enough", async () => {
  const [, , host, , port] = (await servers.noise.address()).split("/");
  const { code, line } = await runClient("js", ["--connect", `${host}:${port}`, "--bytes", "1000"]);
  assert.equal(code, 0);
  assert.equal(line.sent_bytes, 1000);
});

test("--seed makes the identity", async () => {
  const ids = [];
  for (const seed of ["7", "7", "8"]) {
    const server = new Peer("js", ["server", "--listen", "127.0.0.1:0", "--seed", seed]);
    ids.push((await server.address()).split("/").at(-1));
    await server.stop();
  }
  assert.equal(ids[0], ids[1]);
  assert.notEqual(ids[0], ids[2]);
});

test("a client that dies leaves an incomplete run, and a server that goes on", async () => {
  const server = servers.plaintext;
  const before = server.lines.length;
  const client = new Peer("js", ["client", "--connect", await server.address(), "--security", "plaintext", "--seconds", "60"]);
  setTimeout(() => client.process.kill("SIGKILL"), 1500); // for it to connect and to flood
  await client.ended;
  const line = await server.until((lines) => lines[before]);
  assert.equal(line.incomplete, true);
  assert.ok(line.received_bytes > 0);
  await meet(server, "js", { security: "plaintext", protocol: "/perf/0.1.0", bytes: 1000 });
});
