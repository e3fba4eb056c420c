/** The protocol that this client speaks. The daemon's must be the same; additions do not raise it. */
export const PROTOCOL = 1;

/** The version of this client, for the daemon's log. */
export const VERSION = "0.1.0";
