// Every one of the libp2p peers that is built against every other: both protocols, both securities, both
// directions, equal counts at both ends. Not a unit test: it needs the other peers, and prints medians.
//
//   node test/cross.mjs [--time 2] [--reps 3] [--peers js,py,go]
import { parseArgs } from "node:util";
import { isBuilt, meet, Peer, programs } from "./harness.mjs";

const { values } = parseArgs({
  options: { time: { type: "string", default: "2" }, reps: { type: "string", default: "3" }, peers: { type: "string", default: Object.keys(programs).join() } },
});
const names = values.peers.split(",");
const present = names.filter(isBuilt);
for (const name of names) if (!present.includes(name)) console.log(`${name}: not built, left out`);

// Exact runs first, which must agree to the byte, then the timed ones for the medians.
const exact = [
  { protocol: "/perf/0.1.0", bytes: 3_000_001 },
  { protocol: "/perf/1.0.0", bytes: 3_000_001 },
  { protocol: "/perf/1.0.0", bytes: 3_000_001, download: true },
  { protocol: "/perf/1.0.0", bytes: 3_000_001, streams: 5, connections: 2 },
  // Streams so short that a client which does not wait for the answer to its proposal has ended them by then.
  { protocol: "/perf/0.1.0", bytes: 500, streams: 50 },
  { protocol: "/perf/1.0.0", bytes: 500, streams: 50 },
  { protocol: "/perf/1.0.0", bytes: 500, streams: 50, download: true },
];
const timed = { "0.1.0 up": { protocol: "/perf/0.1.0" }, "1.0.0 up": { protocol: "/perf/1.0.0" }, "1.0.0 down": { protocol: "/perf/1.0.0", download: true } };

const rates = {};
let failures = 0;

async function attempt(key, server, client, run) {
  try {
    const { bytes, seconds } = await meet(server, client, run);
    if (run.seconds) (rates[key] ??= []).push(bytes / seconds / 1e6);
  } catch (error) {
    failures++;
    console.log(`FAILED ${key}: ${error.message}`);
  }
}

for (let rep = 0; rep < Number(values.reps); rep++)
  for (const security of ["noise", "plaintext"])
    for (const serving of present) {
      const server = new Peer(serving, ["server", "--listen", "127.0.0.1:0", "--security", security]);
      for (const client of present) {
        const pair = `${security} ${client} to ${serving}`;
        if (rep === 0) for (const run of exact) await attempt(`${pair} ${JSON.stringify(run)}`, server, client, { security, ...run });
        for (const [name, run] of Object.entries(timed)) await attempt(`${pair}, ${name}`, server, client, { security, seconds: Number(values.time), ...run });
      }
      const code = await server.stop();
      if (code !== 0) {
        failures++;
        console.log(`FAILED ${security} ${serving}: SIGTERM ended the server with ${code}`);
      }
    }

const median = (all) => all.toSorted((a, b) => a - b)[Math.floor(all.length / 2)];
for (const [key, all] of Object.entries(rates)) console.log(`${key}: median ${median(all).toFixed(1)} MB/s of ${all.length}`);
console.log(failures ? `${failures} failures` : "no failures");
process.exitCode = failures ? 1 : 0;
