// The two kinds of error that have an exit code of their own.

// UsageError is a wrong command line: exit code 2.
export class UsageError extends Error {}

// Unsupported is what this peer or its library does not have: exit code 127.
export class Unsupported extends Error {}
