"""A broker that joins a running overlay, or leaves it: the overlay file, then the brokers that run.

Order. All brokers answer, or nothing is changed; then the file is written. A broker that leaves goes first,
so that what it has taken reaches its neighbours, or else the file is put back; then its hub reloads the file,
to which the others are linked from then on; then the others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Any

from covey.cli.administration.overlay_edit import OverlayEdit, new_links
from covey.cli.support.access import Access
from covey.matcher.errors import CoveyError, InputError
from covey.overlay.client import ConnectError, RefusedError, inspect_broker
from covey.overlay.client.unary import call_broker
from covey.overlay.node.main import LEAVE_S
from covey.overlay.transport.packets import RELOAD, Reloaded, decode_reloaded, encode_reload

_RELOAD_S = 60.0
_ENDED_S = LEAVE_S + _RELOAD_S
"""A broker that leaves has ended by then."""
_POLL_S = 0.1
_NOTHING = "nothing has changed"


class MembershipError(CoveyError):
    """The running brokers do not let a broker join or leave."""


class Change:
    """One broker that joins or leaves, `name`, as `edit` of the file says; `skipped` do not run."""

    def __init__(self, edit: OverlayEdit, name: str, skipped: Collection[str], access: Access) -> None:
        self.edit = edit
        self._name = name
        self._skipped = skipped
        self._access = access
        for each in skipped:
            if each not in self.edit.before.brokers:
                known = ", ".join(self.edit.before.brokers)
                raise InputError(f"--skip is {each!r}: expected one of {known}")

    async def make(self, wait_s: float) -> None:
        """Make the change, and print what happens. `MembershipError`, one sentence, where it fails."""
        before, after, file = self.edit.before, self.edit.after, self.edit.path
        name, links = self._name, new_links(before, after)
        leaves = name in before.brokers
        running = [each for each in before.brokers if each not in self._skipped]
        states = dict(zip(running, await asyncio.gather(*map(self._state, running)), strict=True))
        if leaves:
            self._check_durable(states.get(name))
        self.edit.write()
        ended = await self._let_go(states[name], wait_s) if leaves and name in running else ""
        what = "left" if leaves else f"has joined at {after.brokers[name].address}"
        print(f"{file}: {name} {what}{_listed(', with new links ', links)}")
        if ended:
            print(ended, flush=True)
        staying = [each for each in running if each != name]
        hubs = [each for each in staying if each in {link[0] for link in links}]
        # One that does not reload keeps no other from it: it reads the file when it starts again.
        failures: list[str] = []
        for group in (hubs, [each for each in staying if each not in hubs]):
            failures += filter(None, await asyncio.gather(*map(self._reload, group)))
        self.edit.release()
        if failures:
            raise MembershipError("; ".join(failures))
        if staying:
            print(f"{', '.join(staying)} {'has' if len(staying) == 1 else 'have'} reloaded the file")
        if not leaves:
            print(f"start {name}: covey broker --config {file} --name {name}", flush=True)
        expected = [link for link in links if not set(link) & set(self._skipped)]
        if wait_s:
            await self._until_linked(expected, wait_s)

    async def _state(self, broker: str) -> dict[str, Any]:
        """What a running broker says of itself; `MembershipError` if it is not that broker."""
        before = self.edit.before
        address = before.brokers[broker].address
        try:
            _, state = await inspect_broker(
                address, listed=0, tls=self._access.tls, token=self._access.token
            )
        except CoveyError as error:
            raise MembershipError(
                f"broker {broker}: {error}; {_NOTHING} (--skip {broker} if it does not run)"
            ) from None
        if (state["broker"], state["overlay"]) != (broker, before.name):
            raise MembershipError(
                f"broker {state['broker']} of overlay {state['overlay']} answers at {address}: expected "
                f"{broker} of {before.name}; {_NOTHING}"
            )
        return state

    def _check_durable(self, state: dict[str, Any] | None) -> None:
        """Events of durable types must not be lost with a broker that leaves, or between its neighbours."""
        before, name = self.edit.before, self._name
        if not before.durable:
            return
        types, neighbours = ", ".join(before.durable), before.neighbours(name)
        if len(neighbours) > 1:
            raise InputError(
                f"broker {name} is linked to {', '.join(neighbours)}: expected a broker with one link, since "
                f"events of the durable types ({types}) between these would be lost"
            )
        if state is None:
            raise InputError(
                f"--skip is {name}: expected a broker that runs, since it has events of the durable types "
                f"({types}); to give these up, take it out of {self.edit.path}, and send each other SIGHUP"
            )
        if state["durable_sessions"] or state["missing"]:
            missing = [f"{each['what']}: {each['why']}" for each in state["missing"]]
            found = [f"durable sessions: {state['durable_sessions']}"] if state["durable_sessions"] else []
            raise MembershipError(
                f"broker {name} stores events for others ({'; '.join(found + missing)}): expected it to be "
                f"ready, and durable sessions to have moved or ended; {_NOTHING}"
            )

    async def _let_go(self, state: dict[str, Any], wait_s: float) -> str:
        """Have the broker drain and end, which it does within seconds, or with durable types when its
        neighbours have what it stores; returns a line that tells how it ended. Where it may not leave, or
        with durable types ends before they have that, the file is put back.
        """
        name, file = self._name, self.edit.path
        patience_s = min(max(wait_s, _RELOAD_S), _ENDED_S)
        deadline = time.monotonic() + patience_s
        how = "has sent on what it had, and ended"
        try:
            await self._call(name, leave=True, within_s=patience_s)
        except RefusedError as error:
            self.edit.put_back()
            then = f"{file} is as before: start {name} again" if error.status == "ABORTED" else _NOTHING
            raise MembershipError(f"{error}; {then}") from None
        except ConnectError as error:
            answers = await self._answers(name, state["process"])
            if not answers and not self.edit.before.durable:
                how = "ended before it had sent on what it had"
            elif not answers or time.monotonic() < deadline - 1:
                self.edit.put_back()
                then = _NOTHING if answers else f"{file} is as before: start {name} again"
                raise MembershipError(f"broker {name} has not left: {error}; {then}") from None
        while await self._answers(name, state["process"]):
            if time.monotonic() > deadline:
                raise MembershipError(
                    f"broker {name} is still sending on what it has: expected it to end; once it has, send "
                    f"each other broker SIGHUP, and they are linked without it ({file} has changed)"
                )
            await asyncio.sleep(_POLL_S)
        clients = f"; {state['sessions']} sessions of clients have ended" if state["sessions"] else ""
        return f"{name} {how}{clients}"

    async def _answers(self, broker: str, process: int) -> bool:
        address = self.edit.before.brokers[broker].address
        try:
            _, state = await inspect_broker(
                address, listed=0, tls=self._access.tls, token=self._access.token
            )
        except CoveyError:
            return False
        return bool(state["process"] == process)

    async def _reload(self, broker: str) -> str:
        """Have a broker read the file; returns why it has not, or nothing."""
        try:
            reloaded = await self._call(broker)
        except CoveyError as error:
            return f"broker {broker} has not reloaded its file: {error} ({self.edit.path} has changed)"
        if set(reloaded.neighbours) == set(self.edit.after.neighbours(broker)):
            return ""
        return (
            f"broker {broker} has reloaded {reloaded.file}, where {self._name} has not changed: copy "
            f"{self.edit.path} there, and send {broker} SIGHUP"
        )

    async def _call(self, broker: str, *, leave: bool = False, within_s: float = _RELOAD_S) -> Reloaded:
        address, credentials = self.edit.before.brokers[broker].address, self._access.credentials
        request = encode_reload(leave=leave)
        return decode_reloaded(await call_broker(address, RELOAD, request, credentials, within_s))

    async def _until_linked(self, links: list[tuple[str, str]], wait_s: float) -> None:
        """Wait until the first end of each link has the second one's interest."""
        deadline = time.monotonic() + wait_s
        for upper, lower in links:
            while not await self._linked(upper, lower):
                if time.monotonic() > deadline:
                    raise MembershipError(
                        f"{lower} is not linked to {upper} within {wait_s:g} s: expected it to run; covey "
                        f"health --ready says what is missing"
                    )
                await asyncio.sleep(_POLL_S)
            print(f"{lower} is linked to {upper}", flush=True)

    async def _linked(self, upper: str, lower: str) -> bool:
        address = self.edit.after.brokers[upper].address
        try:
            _, state = await inspect_broker(
                address, listed=0, tls=self._access.tls, token=self._access.token
            )
        except CoveyError:
            return False
        interface = f"broker/{lower}"
        missing = {each["what"] for each in state["missing"]}
        return interface in state["interfaces"] and interface not in missing


def _listed(before: str, links: list[tuple[str, str]]) -> str:
    return before + ", ".join(" - ".join(link) for link in links) if links else ""
