/** Connecting to the socket of abxd, for calls and for raw streams: both carry secrets, so both look who listens. */

import { stat } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { dirname } from "node:path";
import { AbxError, lostConnection, unreachable } from "./errors";
import { isTrusted } from "./paths";

/** Connects. What breaks later shows as the connection's close alone. */
export async function dial(path: string): Promise<Socket> {
  if (process.platform === "win32") {
    throw new AbxError(
      "unsupported_platform",
      "abx does not run on Windows itself",
      "open the folder in WSL or over SSH",
    );
  }
  const failed = (error: unknown) => unreachable(path, error as NodeJS.ErrnoException);
  const socket = await new Promise<Socket>((done, fail) => {
    const socket = connect(path);
    socket.once("error", (error) => fail(failed(error)));
    socket.once("connect", () => {
      socket.removeAllListeners("error");
      socket.on("error", () => undefined);
      done(socket);
    });
  });
  // Whoever owns the socket or its directory chooses who listens there. Asked now that nothing has been sent.
  for (const one of [path, dirname(path)]) {
    const owner = await stat(one).catch((error: unknown) => failed(error));
    if (!(owner instanceof AbxError) && isTrusted(owner.uid)) continue;
    socket.destroy();
    if (owner instanceof AbxError) throw owner;
    throw new AbxError(
      "socket_foreign",
      `${one} belongs to user ${owner.uid}, not to this one`,
      "use a home of your own: set abx.home, or ABX_HOME",
    );
  }
  // It may have gone meanwhile, which nobody would hear of any more.
  if (socket.destroyed) throw lostConnection();
  return socket;
}
