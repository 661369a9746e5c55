import type { Batch, Client, CoveyError, SubscribeOptions, Subscription, Value, VariableValue, View, ViewOptions } from "./covey.js";

/**
 * A subscription for as long as the component is mounted, whose variables follow `values`; null until it has begun. `error` is why it
 * could not begin, or why the last update was refused. With null for a client nothing happens yet.
 */
export function useSubscription<E = Record<string, Value>>(
  client: Client | null,
  type: string,
  filter?: string,
  values?: Record<string, VariableValue>,
  onEvents?: (events: E[] & Uint8Array, batch: Batch) => void,
  options?: SubscribeOptions,
): { subscription: Subscription<E> | null; error: CoveyError | null };

/** A view in the same way: `items` are the last events of the keys inside, renewed once per frame at most. */
export function useView<E = Record<string, Value>>(
  client: Client | null,
  type: string,
  filter?: string,
  values?: Record<string, Value>,
  options?: ViewOptions,
): { items: E[]; view: View<E> | null; error: CoveyError | null };
