// Hooks of React over a `Client`: what a component subscribes to follows its state. Typed by react.d.ts.

import { useEffect, useRef, useState } from "react";

const NOTHING = { subscription: null, error: null };
const onNextFrame = globalThis.requestAnimationFrame ?? ((call) => setTimeout(call, 16));

// Events that match; `onEvents` is that of the newest render. The subscription begins again where client, type, filter or
// options change, and moves where values do.
export function useSubscription(client, type, filter = "", values = {}, onEvents = () => {}, options = {}) {
  const newest = useRef(onEvents);
  useEffect(() => void (newest.current = onEvents));
  const begin = () => client.subscribe(type, filter, values, (...events) => newest.current(...events), options);
  return useFollowing(begin, [client, type, filter, JSON.stringify(options)], values);
}

// The last event of each key inside, as a list that is renewed once per frame at most.
export function useView(client, type, filter = "", values = {}, options = {}) {
  const [items, setItems] = useState([]);
  const identity = [client, type, filter, JSON.stringify(options)];
  useEffect(() => () => setItems([]), identity); // the next view must not begin with them
  const begin = (alive) => {
    let view = null;
    let due = false;
    const show = () => {
      if (due) return;
      due = true;
      onNextFrame(() => {
        due = false;
        if (view && alive()) setItems([...view.inside.values()]);
      });
    };
    return client.view(type, filter, values, show, options).then((opened) => {
      view = opened;
      show();
      return opened;
    });
  };
  const { subscription: view, error } = useFollowing(begin, identity, values);
  return { items: view ? items : [], view, error };
}

function useFollowing(begin, identity, values) {
  const [state, setState] = useState(NOTHING);
  const { subscription } = state;

  useEffect(() => {
    if (!identity[0]) return; // there is no client yet
    let alive = true;
    const opened = begin(() => alive);
    opened.then(
      (begun) => alive && setState({ subscription: begun, error: null }),
      (error) => alive && setState({ subscription: null, error }),
    );
    return () => {
      alive = false;
      setState(NOTHING);
      opened.then((begun) => begun.unsubscribe()).catch(() => {}); // the client may have ended
    };
  }, identity);

  useEffect(() => {
    if (!subscription) return;
    const settle = (error) =>
      setState((now) => (now.subscription === subscription && now.error !== error ? { subscription, error } : now));
    if (same(values, subscription.values)) settle(null);
    else subscription.update(values).then(() => settle(null), settle);
  }, [subscription, JSON.stringify(values)]);

  return state;
}

function same(values, others) {
  return Object.keys(values).every((name) => JSON.stringify(values[name]) === JSON.stringify(others[name]));
}
