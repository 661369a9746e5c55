// A page of the tests: a view whose bound and filter follow buttons, and a subscription beside it.
import { StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { Client } from "covey-browser";
import { useSubscription, useView } from "covey-browser/react";

const covey = (window.covey = new Client("/covey"));

function Ships() {
  const [limit, setLimit] = useState(10);
  const [filter, setFilter] = useState("x < $limit");
  const [seen, setSeen] = useState([]);
  const { items, view, error } = useView(covey, "Ship", filter, { limit });
  useEffect(() => void (window.shown ??= []).push(`${view?.filter}: ${items.map(({ id }) => id)}`));
  const { subscription } = useSubscription(covey, "Ship", "x >= $limit", { limit }, (ships) => setSeen((old) => [...old, ...ships.map(({ x }) => x)]));
  return (
    <>
      <button id="wider" onClick={() => setLimit(30)} />
      <button id="other" onClick={() => setFilter("x > $limit")} />
      <button id="wrong" onClick={() => setLimit("far")} />
      <p id="inside">{items.map(({ id }) => id).sort().join(" ")}</p>
      <p id="ready">{subscription?.type}</p>
      <p id="limit">{view?.values.limit}</p>
      <p id="events">{seen.join(" ")}</p>
      <p id="error">{error?.message ?? ""}</p>
    </>
  );
}

function Page() {
  const [here, setHere] = useState(true);
  return (
    <>
      <button id="away" onClick={() => setHere(false)} />
      {here && <Ships />}
    </>
  );
}

createRoot(document.getElementById("root")).render(<StrictMode><Page /></StrictMode>);
