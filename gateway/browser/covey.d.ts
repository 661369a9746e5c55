/** What a message of the gateway that is neither events nor an answer says; its fields are in /asyncapi.json. */
export type Notice =
  | { kind: "gap"; cause: "overflow" | "broker" | "resume" | "conflated"; type: string; count: number; first_ms: number; last_ms: number }
  | { kind: "overflow"; policy: Overflow; pending_bytes: number }
  | { kind: "expiry"; expires_in_s: number }
  | { kind: "connection"; connected: boolean; message: string }
  | { kind: "ended"; subscription: number; reason: string }
  | { kind: "notice"; subscription: number; message: string }
  | { kind: "error"; subscription?: number; status: string; message: string };

/** "conflate" keeps the last event of each key and subscription; the event types need a key. */
export type Overflow = "drop_oldest" | "drop_newest" | "disconnect" | "block" | "conflate";

/** A value of an attribute; null where it is absent. Timestamps are ISO 8601. */
export type Value = string | number | boolean | string[] | null;

/** A value of a variable, or one that changes by `rate` per second by itself. */
export type VariableValue = Value | { value: number; rate: number };

export interface Batch {
  subscription: number;
  type: string;
  publisher: string;
  /** With the publisher, what identifies each event. */
  sequences: number[];
  /** When they entered the overlay, in ms since 1970. */
  ingress_ms: number;
  /** Out of their publisher's order, in answer to a gapless update. */
  replayed?: boolean;
}

export interface Options {
  /**
   * A bearer token, or a function that returns one; it is called for each connection and before a token ends. Where it throws the
   * client ends if it was never connected; later it is called again, and the notice "error" has why.
   */
  token?: string | (() => string | Promise<string>);
  /** What a full queue of this client at the gateway does; "drop_oldest" by default. */
  overflow?: Overflow;
  /** With "arrow", subscriptions get Arrow IPC streams as Uint8Array in place of arrays of objects. */
  format?: "json" | "arrow";
  /** Called when the connection opens ("resumed": nothing is lost, "afresh": a new session) and when it breaks or the first attempt fails. */
  onState?: (connected: boolean, reason: string) => void;
  onNotice?: (notice: Notice) => void;
  /** A class to use in place of the global WebSocket, such as that of the package ws. */
  WebSocket?: new (url: string) => WebSocket;
}

export interface SubscribeOptions {
  /** Events per second and key, at most: the newest comes, and what it supersedes is told in a gap. */
  maxRate?: number;
  /** Seconds after which it ends, counted from its arrival at the broker, unless it is renewed. */
  validFor?: number;
}

export interface ViewOptions {
  /** A wider filter, with all variables of the view's: keys enter by the filter, and leave once they do not match this one. */
  leave?: string;
}

export class CoveyError extends Error {
  /** The name of a gRPC status, such as "INVALID_ARGUMENT". */
  readonly status: string;
  constructor(status: string, message: string);
}

export class Subscription<E = Record<string, Value>> {
  readonly number: number;
  readonly type: string;
  readonly filter: string;
  /** The newest values of the variables; those of an update count from its call on, unless it is refused. */
  readonly values: Readonly<Record<string, VariableValue>>;
  /** The attributes of the event type, and their kinds. */
  readonly attributes: Readonly<Record<string, string>>;
  /** Resolves when every broker that it concerns has applied the values; no event comes after it that they do not match. */
  update(values: Record<string, VariableValue>, options?: { gapless?: boolean }): Promise<void>;
  /** Whether its validity period is over; no event comes then. */
  readonly expired: boolean;
  /** Have it end in so many seconds, counted anew. Resolves when the broker has applied it. */
  renew(validFor: number): Promise<void>;
  unsubscribe(): Promise<void>;
}

export interface Change<E = Record<string, Value>> {
  kind: "enter" | "change" | "leave";
  /** The newest of its key; of one that leaves as the bounds move, the last inside. */
  event: E;
}

/** Changes of a view as the gateway sends them. */
export interface Changes {
  subscription: number;
  type: string;
  /** The attribute that is the key. */
  key: string;
  /** Of each event, in order. */
  changes: ("enter" | "change" | "leave")[];
}

/** What is inside of the bounds: the last event of each key that matches. */
export class View<E = Record<string, Value>> extends Subscription<E> {
  /** By key; empty with format "arrow". It is kept over a new session, whose differences are changes. */
  readonly inside: ReadonlyMap<Value, E>;
  /** Resolves when all that enters and leaves by it has been handed to `onChanges`. */
  update(values: Record<string, Value>): Promise<void>;
}

export class Client {
  /**
   * `url` is that of the gateway: "https://example.org", or a path such as "/covey" on a page. `CoveyError` for what is no
   * such URL, for an option of another name, and where there is no WebSocket.
   */
  constructor(url: string, options?: Options);
  readonly connected: boolean;
  /** Resolves once connected; rejects where the gateway refuses this client for good. */
  opened(): Promise<void>;
  /** `onEvents` gets each batch: an array of objects, or with format "arrow" an Arrow IPC stream. */
  subscribe<E = Record<string, Value>>(
    type: string,
    filter?: string,
    values?: Record<string, VariableValue>,
    onEvents?: (events: E[] & Uint8Array, batch: Batch) => void,
    options?: SubscribeOptions,
  ): Promise<Subscription<E>>;
  /**
   * Resolves when what is inside has been handed to `onChanges`, each as an enter. The event type needs a key. With format
   * "arrow" `onChanges` gets an Arrow IPC stream and the rest of the message; a new session then sends all enters again.
   */
  view<E = Record<string, Value>>(
    type: string,
    filter?: string,
    values?: Record<string, Value>,
    onChanges?: (changes: Change<E>[] & Uint8Array, batch?: Changes) => void,
    options?: ViewOptions,
  ): Promise<View<E>>;
  /** Resolves when the broker has accepted the events. */
  publish(type: string, events: Record<string, Value> | Record<string, Value>[]): Promise<void>;
  /** Ends the session at the gateway. No callback is called afterwards but `onState`, once. */
  close(): void;
}
