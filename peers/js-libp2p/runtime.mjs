// What the library expects of newer Nodes. The current js-libp2p calls Promise.withResolvers, which came
// with Node 22; its packages declare no minimum, and on Node 20 every negotiation would end in a TypeError.
// This is the function of the ECMAScript 2024 specification (27.2.4.8), and nothing on a Node that has it.
Promise.withResolvers ??= function withResolvers() {
  let resolve, reject;
  const promise = new this((fulfil, fail) => {
    resolve = fulfil;
    reject = fail;
  });
  return { promise, resolve, reject };
};
