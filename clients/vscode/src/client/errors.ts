/** Everything that can go wrong on the way to abxd and back, in one class: programs look at `kind`. */

import { ErrorCodes, ResponseError } from "vscode-jsonrpc/node";
import type { ErrorData, ErrorKind } from "../protocol";

/** Kinds that this client adds to those of the daemon. */
export type LocalKind =
  /** Nobody listens on the socket, or the connection was lost. */
  | "daemon_unreachable"
  /** The socket, or its directory, belongs to another user: nothing was sent, and no daemon is started. */
  | "socket_foreign"
  /** It accepts connections and does not answer. */
  | "daemon_hangs"
  /** There is no program `abx` to start the daemon with. */
  | "program_missing"
  /** The daemon speaks another version of the protocol. */
  | "protocol_mismatch"
  /** There are no Unix sockets of abx here. */
  | "unsupported_platform"
  /** The user cancelled. What was begun goes on in the daemon. */
  | "cancelled"
  /** The other side sent what it must not. */
  | "protocol_error";

export class AbxError extends Error {
  override readonly name = "AbxError";

  constructor(
    readonly kind: ErrorKind | LocalKind | (string & {}),
    message: string,
    /** What to do next, with the command to type. */
    readonly hint?: string,
    /** What is below the message, outermost first. */
    readonly causes: readonly string[] = [],
  ) {
    super(message);
  }

  /** The message, its causes and the hint, for a reader. */
  get text(): string {
    const causes = this.causes.length > 0 ? ` (${this.causes.join("; ")})` : "";
    return `${this.message}${causes}${this.hint ? `. Hint: ${this.hint}` : ""}`;
  }
}

const REQUEST_CANCELLED = -32800;

/** The error object of an answer, or of a raw stream, as an error to throw. */
export function fromWire(
  code: number,
  message: string,
  data: (Partial<ErrorData> & { begun?: boolean | null }) | undefined,
): AbxError {
  if (code === REQUEST_CANCELLED)
    return new AbxError("cancelled", "cancelled; what was begun goes on in abxd");
  if (data?.kind === "shutting_down" && data.begun === false)
    return new AbxError(
      data.kind,
      "abxd is stopping, and has begun nothing",
      "do it again: the next abxd is asked",
    );
  const kind = data?.kind ?? (code === ErrorCodes.MethodNotFound ? "method_not_found" : "internal");
  const hint = kind === "method_not_found" ? "bring abx up to date, then: abx daemon restart" : data?.hint;
  return new AbxError(kind, message, hint ?? undefined, data?.causes ?? []);
}

/** Whatever was thrown, as an error of ours. */
export function asAbxError(error: unknown): AbxError {
  if (error instanceof AbxError) return error;
  if (error instanceof ResponseError) {
    // vscode-jsonrpc answers by itself for requests whose connection is gone.
    const lost = [
      ErrorCodes.PendingResponseRejected,
      ErrorCodes.ConnectionInactive,
      ErrorCodes.MessageWriteError,
    ];
    if (lost.includes(error.code as never)) return lostConnection();
    return fromWire(error.code, error.message, error.data as ErrorData | undefined);
  }
  return new AbxError("internal", error instanceof Error ? error.message : String(error));
}

/** The connection ended before the answer came. */
export function lostConnection(): AbxError {
  return new AbxError(
    "daemon_unreachable",
    "the connection to abxd was lost",
    "what was begun goes on in the daemon; look at the session again once it is back",
  );
}

/** A failed attempt to connect. */
export function unreachable(socket: string, error: NodeJS.ErrnoException): AbxError {
  if (error.code === "ENOENT" || error.code === "ECONNREFUSED") {
    return new AbxError(
      "daemon_unreachable",
      `abxd does not run (nobody listens on ${socket})`,
      "abx daemon start",
    );
  }
  return new AbxError("daemon_unreachable", `cannot connect to ${socket}: ${error.message}`, "abx doctor");
}
