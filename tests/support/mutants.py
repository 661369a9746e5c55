"""Mutants of the matcher and of the core of brokers: small defects, each of which some test is to find.

    .venv/bin/python tests/support/mutants.py [NUMBER ...]

Each is made in a copy of the repository, and the tests that concern it run there, uncompiled where it is of
kernels; then one in four of those of all engines runs. Before tests are cut, and after, the set of those found
is to be the same. Four change no answer: two ends of one operand are both strict, or one of them is past its
prefix, so number 0 decides as before; with number 2 a row that no value passes has one of its tests twice;
number 14 lets two names be one, and no known constraint has one name twice; and what number 28 leaves to the
kernels, these leave alone. The tests named find all others.
"""

# ruff: noqa: E501 (a table)

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("cli", "gateway", "matcher", "overlay", "proto", "sim", "spark", "testing")
LIMIT_S = 900

ENGINES = "engines/test_engines.py engines/test_reference_engines.py"
CLUSTER = "engines/test_cluster.py engines/test_rearranging.py engines/test_cluster_bounds.py"
STORES = "engines/test_stores.py engines/test_kernels.py"
REFERENCE, TUNED = "engines/reference", "engines/cluster"

MUTANTS: tuple[tuple[str, str, str, str], ...] = (
    # module of matcher/, text, what stands in its place, tests
    ("compile/plan.py", "(upper.strict or lower.strict)", "(upper.strict and lower.strict)", f"compile {ENGINES}"),
    ("compile/plan.py", "len(constants) == len(operands)", "len(constants) >= 1", f"compile {ENGINES}"),
    ("compile/plan.py", "if b in part.upper and not b.strict]", "if b in part.upper]", f"compile {ENGINES}"),
    ("compile/plan.py", "return most < (other.low", "return most <= (other.low", f"compile {ENGINES}"),
    ("encoding/keys.py", "max(min(cut - 1, LAST), MISSING)", "max(min(cut, LAST), MISSING)", "encoding compile"),
    ("encoding/keys.py", "min(max(cut, FIRST), NOTHING)", "max(cut, FIRST)", "encoding compile"),
    ("encoding/keys.py", "(np.floor if strict is lower else np.ceil)", "(np.floor if lower else np.ceil)", "encoding compile"),
    ("covering/boxes.py", "if low < high else None", "if low <= high else None", "covering"),
    ("covering/boxes.py", "return attribute not in self.tests and", "return", "covering"),
    ("covering/boxes.py", "if kind is Kind.FLOAT64:\n        gaps.append", "if False:\n        gaps.append", "covering"),
    ("covering/cuts.py", "if merged and low <= merged[-1]", "if merged and low < merged[-1]", "covering"),
    ("covering/cuts.py", "or inner[i + 1] > outer[j + 1]", "", "covering"),
    ("covering/cuts.py", "float_cut(nearest) + (nearest <= value)", "float_cut(nearest) + 1", "covering encoding"),
    ("covering/call_atoms.py", "(b, a) if a.expected else (a, b)", "(b, a)", "covering"),
    ("covering/call_atoms.py", "< len(constraint.terms):\n        return False", "< 0:\n        return False", "covering"),
    ("covering/call_atoms.py", "if is_stateful(name):\n        return False", "", "covering"),
    ("evaluation/chainwise.py", "left = left[answers != FALSE]", "left = left[answers == TRUE]", "evaluation"),
    ("evaluation/asking.py", "if entry.stateful and not self._readers:", "if False:", "evaluation engines/test_state_in_engines.py"),
    ("evaluation/asking.py", "if not call.columns:  # of", "if False:  # of", "evaluation"),
    ("embedded/matcher.py", "                engine.remove_many(ids)\n            self._forget", "                pass\n            self._forget", "embedded"),
    ("embedded/matcher.py", "for changed, earlier in parts[:done]:", "for changed, earlier in parts[:0]:", "embedded"),
    ("embedded/value_table.py", "                    if family is Family.STRING:\n                        self.texts.release(old)\n", "", "embedded"),
    ("embedded/snapshot.py", "if found != count:", "if found < 0:", "embedded"),
    ("engines/rows/plans.py", "if use.subscriptions == 0:\n            del", "if use.subscriptions <= 1:\n            del", ENGINES),
    ("engines/rows/engine.py", "len(firsts) if plan.overlaps else 0\n        self._interfaces", "0\n        self._interfaces", ENGINES),
    (f"{TUNED}/store.py", "if highest <= variant < a.EIGHT_BYTES:", "if highest >= 0:", CLUSTER),
    (f"{TUNED}/store.py", "answers[1], distinct=shared)", "answers[1], distinct=False)", CLUSTER),
    (f"{TUNED}/placement.py", "self.former.remove(rows, a.WAITING)", "pass", CLUSTER),
    (f"{TUNED}/placement.py", "some, room = some[stayed], room[stayed]", "pass", CLUSTER),
    (f"{TUNED}/placement.py", "            self.was_interrupted = True\n            raise", "            raise", f"{CLUSTER} engines/test_room.py"),
    (f"{TUNED}/placing_kernels.py", "if stays and zones > 0:", "if False:", f"{STORES} engines/test_cluster_zones.py"),
    (f"{TUNED}/placing_kernels.py", "store.buckets[bucket, a.BUCKET_KEYS + part] == store.keys[part]\n    zones", "store.keys[part] == store.keys[part]\n    zones", STORES),
    (f"{TUNED}/match_kernels.py", "first = max(code - reach, 0) >> shift", "first = max(code - reach + 2, 0) >> shift", STORES),
    (f"{TUNED}/match_kernels.py", "if whole and not shared and store.tables[table, a.TABLE_TESTS] == 1:", "if whole and not shared:", f"{STORES} engines/test_cluster_zones.py"),
    (f"{TUNED}/row_bounds_kernels.py", "elif shape <= a.FIXED and is_high and", "elif shape <= a.FIXED and not is_high and", "engines/test_engines.py"),
    (f"{REFERENCE}/store_kernels.py", "        if table.users[p] > 0:\n            continue\n", "", STORES),
    (f"{REFERENCE}/reference_store.py", "self._members[placed] = -1", "pass", STORES),
    (f"{REFERENCE}/store_kernels.py", "if key > index.tops[column]:\n            continue", "", STORES),
    (f"{REFERENCE}/store_kernels.py", "segments[RANGE, 1], key + 1)", "segments[RANGE, 1], key)", STORES),
    (f"{REFERENCE}/counting.py", "always=np.flatnonzero(tests.sizes == 0)", "always=np.flatnonzero(tests.sizes < 0)", STORES),
    (f"{REFERENCE}/propagation_kernels.py", "if at > last:", "if at >= first:", STORES),
    (f"{REFERENCE}/propagation.py", "[starts[row] + 1 + test]", "[starts[row] + test]", STORES),
    (f"{REFERENCE}/rete_kernels.py", "if true[beta.ranks[child]] == true[last]:", "if true[beta.ranks[child]] > 0:", STORES),
    (f"{REFERENCE}/search_tree_kernels.py", "if via == BY_STAR and nodes[child, STAR] == NONE:", "if via == BY_STAR:", STORES),
    (f"{REFERENCE}/search_tree.py", "roots[rows, k.ROOT_MASK] |= 1 << level", "roots[rows, k.ROOT_MASK] |= 1", STORES),
    (f"{REFERENCE}/scan.py", "highs[holds & ((highs < tops) | (lows == FIRST))] + 1", "highs[holds & (highs < tops)] + 1", STORES),
    (f"{REFERENCE}/counting_kernels.py", "value == (operator == AND)", "value == (operator != AND)", STORES),
)  # fmt: skip

GUARANTEES, FREEZES = (f"../../sim/simulator/test_{name}.py" for name in ("guarantees", "freezes"))

OF_BROKERS: tuple[tuple[str, str, str, str], ...] = (
    # module of overlay/core/, text, what stands in its place, tests
    ("routing/acks.py", "if queue and queue[-1].epoch > epoch:", "if False:", "routing/test_acks.py"),
    ("routing/acks.py", "if pending.missing or pending.void:", "if pending.missing:", "routing/test_acks.py"),
    ("routing/acks.py", "(awaited if awaited == UNSYNCED else epoch, serial, pending)", "(epoch, serial, pending)", "routing"),
    ("routing/acks.py", "            if self.outstanding(neighbour, newest):", "            if False:", "routing/test_acks.py"),
    ("routing/acks.py", "limit = min(first - 1, limit)", "limit = min(first, limit)", "routing/test_acks.py"),
    ("routing/slots.py", "(wider if handover.wider else narrower)", "(narrower if handover.wider else wider)", f"routing {GUARANTEES}"),
    ("routing/slots.py", "if slot.structure == handover.entered.structure:", "if True:", "routing/test_slots.py"),
    ("routing/slots.py", " if old[name] != value}", "}", "routing/test_slots.py routing/test_scripts.py"),
    ("routing/slots.py", "if slot.refused or not refused_only:", "if not refused_only:", "routing"),
    ("routing/event_routing.py", "(message.for_views or not message.replayed)", "True", "routing/test_views_of_keys.py"),
    ("routing/event_routing.py", "np.diff(sequences) != 1) + 1", "np.diff(sequences) != 1)", "routing"),
    ("endpoint/flow.py", "hold = len(full) > (source in full)", "hold = bool(full)", f"endpoint/test_flow.py {FREEZES}"),
    ("endpoint/flow.py", "if share.dear_until_ns <= now_ns or not self", "if not self", "endpoint/test_flow.py"),
    ("endpoint/flow.py", "self._line_ns = share.place_ns + 2 * share.spent_ns", "self._line_ns = share.place_ns + share.spent_ns", "endpoint/test_flow.py"),
    ("endpoint/recovery.py", "if self._awaited or not self.awaits_clients:", "if not self.awaits_clients:", "endpoint/test_recovery.py"),
    ("endpoint/recovery.py", "self._new_neighbour |= not hello", "self._new_neighbour = not hello", "endpoint"),
    ("endpoint/quotas.py", "level - amount if passed else level", "level - amount", "endpoint/test_quotas.py"),
    ("endpoint/quotas.py", "max(0, now_ns - since_ns)", "(now_ns - since_ns)", "endpoint/test_quotas.py"),
)  # fmt: skip

PLACED = [("matcher", *mutant) for mutant in MUTANTS] + [("overlay/core", *mutant) for mutant in OF_BROKERS]
"""All mutants by number, with the module's folder, and its tests' folder in tests/."""


def is_found(number: int) -> bool | None:
    """Whether a test fails with a mutant; None unless its text occurs exactly once."""
    room, module, old, new, tests = PLACED[number]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        place = copy / room / module
        text = place.read_text()
        if text.count(old) != 1:
            return None
        place.write_text(text.replace(old, new))
        (Path(folder) / "path" / "covey").mkdir(parents=True)
        for name in ROOMS:
            (Path(folder) / "path" / "covey" / name).symlink_to(copy / name)
        files = [str(copy / "tests" / room / name) for name in tests.split()]
        environment = os.environ | {
            "PYTHONPATH": str(Path(folder) / "path"),
            "COVEY_SEED": "1",
        }
        if "kernels" in module or "engines/test_stores.py" in tests:
            environment |= {"NUMBA_DISABLE_JIT": "1", "COVEY_ONE_IN": "4" if "test_engines" in tests else "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files]
        try:
            ran = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return True
        return ran.returncode == 1


if __name__ == "__main__":
    for number in map(int, sys.argv[1:] or range(len(PLACED))):
        verdict = {True: "found", False: "NOT FOUND", None: "NOT MADE"}[is_found(number)]
        room, module, old, *_ = PLACED[number]
        print(f"{number:3} {verdict:9} {room}/{module}: {old.splitlines()[0].strip()}", flush=True)
