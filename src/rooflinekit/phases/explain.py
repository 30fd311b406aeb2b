"""The tree behind an estimate: every term with the arithmetic that gives it, which re-evaluates to its value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.operators.cost import SEQUENCES, TOKENS, Feature, Matrix
from rooflinekit.operators.moe import distinct_experts, distinct_experts_interval
from rooflinekit.phases.estimate import Estimate
from rooflinekit.phases.row import OperatorEstimate
from rooflinekit.roofline.communication import Leg
from rooflinekit.roofline.timing import RowLaw


@dataclass(frozen=True)
class Term:
    """
    One value, the Python expression that gives it, where its constants are from, and the terms behind it.

    ``expression`` is in base units (seconds, bytes, FLOP); evaluating it gives ``value``.
    """

    label: str
    value: float
    shown: str
    expression: str
    source: str = ""
    children: tuple["Term", ...] = ()

    def walk(self) -> Iterator["Term"]:
        """Yield this term and every one below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    def lines(self, first: str = "", rest: str = "") -> Iterator[str]:
        """Yield the tree line by line."""
        source = f"   [{self.source}]" if self.source else ""
        yield f"{first}{self.label} = {self.shown}{source}"
        branch = "|  " if self.children else "   "
        if self.expression:
            yield f"{rest}{branch}= {self.expression}"
        for child in self.children:
            last = child is self.children[-1]
            yield from child.lines(f"{rest}{'`- ' if last else '|- '}", f"{rest}{'   ' if last else '|  '}")

    def __str__(self) -> str:
        """Render the tree."""
        return "\n".join(self.lines())

    __repr__ = __str__


def explain(estimate: Estimate) -> Term:
    """Explain one point: its passes, each pass's operators by time, and each operator's terms."""
    if estimate.shape != ():
        message = f"explain() takes one point, not {estimate.shape}: ask for the one you mean"
        raise InvalidInputError(message)
    steps = estimate.steps
    if len(steps) > 1:
        children = tuple(_pass(step) for step in steps)
        return Term(
            estimate.label, estimate.time_s, units.duration(estimate.time_s), _sum(children), estimate.basis, children
        )
    return _pass(estimate)


def _pass(step: Estimate) -> Term:
    if step.x.shape[1] == 0:
        return Term(step.label, 0.0, "0 s", "0", step.basis)
    launched = [row for row in step.operators if row.time_s]  # a form of latent attention that no group uses is not
    groups = [[row for row in launched if row.op_class in classes] for _, classes, _ in _PARTS]
    rest = [row for row in launched if not any(row in group for group in groups)]
    parts = [*zip(_PARTS, groups, strict=True), (("small kernels", (), None), rest)]
    children = tuple(_part(label, rows, kind, step) for (label, _, kind), rows in parts if rows)
    shown = f"{units.duration(step.time_s)}, {step.bound}-bound, floor {units.duration(step.floor_s)}"
    return Term(step.label, step.time_s, shown, _sum(children), "; ".join((step.basis, *step.notes)), children)


#: Relative error of sums in floating point.
_ROUNDING = 1e-9
#: What a planner asks first: a part of the pass, its classes of operators, and the bytes it is there to read.
_PARTS: tuple[tuple[str, tuple[str, ...], str | None], ...] = (
    ("weights: linear layers and experts", ("product", "mixture"), "weight_bytes"),
    ("KV: attention", ("attention",), "kv_bytes"),
    ("states: convolutions and scans", ("scan",), "state_bytes"),
    ("communication: messages between devices", ("collective",), "message_bytes"),
)


def _part(label: str, rows: Sequence[OperatorEstimate], kind: str | None, step: Estimate) -> Term:
    """Explain one part of a pass by its operators, the longest first."""
    ordered = sorted(rows, key=lambda row: -row.time_s)
    children = tuple(_operator(row, row.time_s / step.time_s) for row in ordered)
    value = sum(row.time_s for row in rows)
    verb = "sent" if kind == "message_bytes" else "read"
    read = "" if kind is None else f", {units.si(sum(getattr(row, kind) for row in rows), 'B')} {verb}"
    shown = f"{units.duration(value)}, {value / step.time_s:.1%} of the pass{read}"
    return Term(label, value, shown, _sum(children), "", children)


def _sum(children: tuple[Term, ...]) -> str:
    return " + ".join(number(child.value) for child in children)


def _operator(row: OperatorEstimate, share: float) -> Term:
    law = row.estimate.timing.row_laws[row.index]
    if law.collective is not None:
        return _collective(row, law, share)
    terms = [term for term in (_launch(row), _compute(row), _memory(row), _serial(row)) if term.value]
    joined = [term for term in terms if term.label in ("compute", "memory")]
    apart = [number(term.value) for term in terms if term not in joined]
    expression = " + ".join([*apart, _joined([term.value for term in joined], law.exponent)] if joined else apart)
    shown = f"{units.duration(row.time_s)}, {share:.1%} of the pass, {row.bound}"
    return Term(row.name, row.time_s, shown, expression, law.basis, tuple(terms))


def _collective(row: OperatorEstimate, law: RowLaw, share: float) -> Term:
    """Explain a row of messages: the legs that run for their size, and the pause before each launch."""
    count = _count(row, "message bytes", row.estimate.timing.plan.message_bytes, "B")
    legs = law.collective.running(float(row.launches), count.value) if law.collective else ()
    terms = [_leg(leg, float(row.launches), count) for leg in legs]
    terms += [_launch(row)] if row.launch_time_s else []
    each = units.si(count.value / float(row.launches), "B")
    shown = f"{units.duration(row.time_s)}, {share:.1%} of the pass, {units.count(row.launches)} messages of {each}"
    return Term(row.name, row.time_s, shown, _sum(tuple(terms)), law.basis, tuple(terms))


def _leg(leg: Leg, launches: float, count: Term) -> Term:
    """Explain one leg by its latency and its wire time, and the root of both where the library changes protocol."""
    latency, value = launches * leg.latency_s, float(leg.seconds(launches, count.value))
    rate = f"({number(leg.fraction)} * {number(leg.link_bytes_per_s)})"
    wire_s = float(leg.seconds(0.0, count.value))
    wire = Term(
        "wire", wire_s, units.duration(wire_s), f"{number(count.value)} * {number(leg.factor)} / {rate}", "", (count,)
    )
    waits = Term("latency", latency, units.duration(latency), f"{number(launches)} * {number(leg.latency_s)}")
    root = f" + {number(2.0 * leg.join)} * ({number(latency)} * {number(wire_s)}) ** 0.5" if leg.join else ""
    expression = f"{number(latency)} + {number(wire_s)}{root}"
    return Term(leg.label, value, units.duration(value), expression, "", (waits, wire))


def _joined(values: list[float], exponent: float) -> str:
    if len(values) == 1:
        return number(values[0])
    left, right = map(number, values)
    if exponent == 1.0:
        return f"({left} + {right})"
    if np.isinf(exponent):
        return f"max({left}, {right})"
    return f"({left} ** {exponent:g} + {right} ** {exponent:g}) ** (1 / {exponent:g})"


def _launch(row: OperatorEstimate) -> Term:
    law = row.estimate.timing.row_laws[row.index]
    work = f"{number(row.launches)} * {number(law.launch_s)}"
    host = row.launch_time_s - float(row.launches) * law.launch_s
    paid = row.estimate.timing.laws.step_us and host > _ROUNDING * row.launch_time_s  # the host's time is on one row
    label = "launches and the host's time for a pass" if paid else "launches"
    return Term(
        label, row.launch_time_s, units.duration(row.launch_time_s), f"{work} + {number(host)}" if paid else work
    )


def _compute(row: OperatorEstimate) -> Term:
    plan, law = row.estimate.timing.plan, row.estimate.timing.row_laws[row.index]
    counts = [_count(row, "FLOPs", plan.flops, "FLOP")]
    work = number(row.flops)
    scores = row.estimate.collect(plan.scores[row.index] @ row.estimate.x)
    if law.softmax_flops_per_score and scores:
        counts.append(_count(row, "scores", plan.scores, ""))
        work = f"({work} + {number(scores)} * {number(law.softmax_flops_per_score)})"
    work = f"{work} / ({number(law.compute)} * {number(law.peak_flops_per_s)})"
    work += _vector(row, counts)
    stretch = float(np.asarray(row.estimate.stretch).reshape(-1)[0])
    slowed = f" * {number(stretch)}" if stretch != 1.0 else ""
    value = row.compute_time_s
    whole = f"({work}){slowed}" if slowed else work
    return Term("compute", value, units.duration(value), whole, _peak(row), tuple(counts))


def _vector(row: OperatorEstimate, counts: list[Term]) -> str:
    """Give what the vector units add: unpacking weights, and their part of the product; its counts join the others."""
    plan, law = row.estimate.timing.plan, row.estimate.timing.row_laws[row.index]
    packed, rate = _count(row, "packed weights", plan.packed_weights, ""), row.estimate.timing.rates.vector_flops_per_s
    spent = []
    if law.unpack_flops_per_weight and packed.value:
        counts.append(packed)
        spent.append(f"{number(packed.value)} * {number(law.unpack_flops_per_weight)}")
    if law.vector_flops_per_flop and row.flops:
        spent.append(f"{number(row.flops)} * {number(law.vector_flops_per_flop)}")
    return f" + ({' + '.join(spent)}) / {number(rate)}" if spent and np.isfinite(rate) else ""


def _memory(row: OperatorEstimate) -> Term:
    estimate, law = row.estimate, row.estimate.timing.row_laws[row.index]
    plan, value = estimate.timing.plan, row.memory_time_s
    kinds = {"KV bytes": plan.kv_bytes}
    if law.activation is None:
        kinds = {"weight bytes": plan.weight_bytes, "activation bytes": plan.activation_bytes, **kinds}
        kinds["state bytes"] = plan.state_bytes
    counts = [term for name, matrix in kinds.items() if (term := _count(row, name, matrix, "B")).value]
    moved = [number(term.value) for term in counts]
    if (
        law.tile_tokens
        and (short := _count(row, f"rows short of a tile of {law.tile_tokens:g}", plan.kv_row_bytes, "B")).value
    ):
        moved.append(number(short.value))
        counts.append(short)
    rate = f"({number(law.memory)} * {number(law.peak_bytes_per_s)})"
    work = f"({' + '.join(moved)})" if len(moved) > 1 else "".join(moved) or "0"
    return Term("memory", value, units.duration(value), f"{work} / {rate}", _bandwidth(row), tuple(counts))


def _serial(row: OperatorEstimate) -> Term:
    plan, law = row.estimate.timing.plan, row.estimate.timing.row_laws[row.index]
    if law.activation is None:
        return _inner(row)
    value, rate = row.serial_time_s, f"({number(law.activation)} * {number(law.peak_bytes_per_s)})"
    kinds = {"bytes of queries and outputs": plan.activation_bytes, "weight bytes": plan.weight_bytes}  # of sinks
    counts = [term for name, matrix in kinds.items() if (term := _count(row, name, matrix, "B")).value]
    work = f"({' + '.join(number(term.value) for term in counts) or '0'}) / {rate}"
    return Term("queries and outputs", value, units.duration(value), work, "", tuple(counts))


def _inner(row: OperatorEstimate) -> Term:
    """Explain what a product pays beside its work: quantising its input, the serial part of its sums."""
    plan, law = row.estimate.timing.plan, row.estimate.timing.row_laws[row.index]
    priced = (
        ("input values quantised", plan.input_elements, law.quantisation_ps_per_element * units.PICO),
        ("inner width of all launches", plan.inner_elements, law.inner_ns_per_element * units.NANO),
    )
    counts = [(_count(row, label, matrix, ""), price) for label, matrix, price in priced if price]
    work = " + ".join(f"{number(count.value)} * {number(price)}" for count, price in counts)
    value = row.serial_time_s
    return Term("input and inner sums", value, units.duration(value), work, "", tuple(count for count, _ in counts))


def _count(row: OperatorEstimate, label: str, matrix: Matrix, unit: str) -> Term:
    """Show a count as the sum of coefficient x feature."""
    x = row.estimate.x[:, 0]
    used = [
        (c, f, v) for c, f, v in zip(matrix[row.index], row.estimate.timing.plan.features, x, strict=True) if c and v
    ]
    value = float(sum(c * v for c, _, v in used))
    expression = " + ".join(f"{number(c)} * {number(v)}" for c, _, v in used)
    named = ", ".join(str(feature) for _, feature, _ in used)
    behind = tuple(term for _, feature, v in used if (term := _behind(row.estimate, feature, float(v))))
    return Term(label, value, units.si(value, unit, 4), expression, f"coefficient x {named}" if named else "", behind)


def _behind(estimate: Estimate, feature: Feature, value: float) -> Term | None:
    """Explain a feature that is no plain count: the distinct experts of a pass, what a window leaves of the context."""
    if feature.kind == "experts":
        return _experts(feature, value, _feature(estimate, TOKENS))
    if (
        feature.window is None
        or feature.kind != "rows_read"
        or feature.shards > 1
        or SEQUENCES not in estimate.timing.plan.features
    ):
        return None
    sequences = _feature(estimate, SEQUENCES)
    each = value / sequences
    shown = f"{units.count(value)}: {units.count(each)} for each of {units.count(sequences)} sequences"
    return Term(str(feature), value, shown, f"{number(each)} * {number(sequences)}")


def _experts(feature: Feature, value: float, tokens: float) -> Term:
    """Give the expected distinct experts, and the interval that routing leaves: all tokens agree, or it is even."""
    experts, each, skew, *rank = feature.detail
    if rank:
        return _experts_of_rank(feature, value, tokens)
    interval = distinct_experts_interval(tokens, experts, each, skew)
    ends = f"{units.count(interval.least)} (all tokens agree) and {units.significant(float(interval.uniform), 4)}"
    uniform = f"{number(experts)} * (1 - (1 - {number(each)} / {number(experts)}) ** {number(tokens)})"
    shown = f"{units.significant(value, 4)}, between {ends} (even routing)"
    return Term(f"{feature} over {units.count(tokens)} tokens", value, shown, "" if skew else uniform)


def _experts_of_rank(feature: Feature, value: float, tokens: float) -> Term:
    """Give the distinct experts of a rank: its part of those of the pass, at most all that it holds."""
    experts, _, _, held, imbalance = feature.detail
    whole = feature._replace(detail=feature.detail[:3])
    distinct = float(distinct_experts(tokens, *whole.detail))
    expression = f"min({number(distinct)} * {number(held)} / {number(experts)} * {number(imbalance)}, {number(held)})"
    shown = f"{units.significant(value, 4)} of the {units.count(held)} that the busiest rank holds"
    return Term(
        f"{feature} over {units.count(tokens)} tokens",
        value,
        shown,
        expression,
        "",
        (_experts(whole, distinct, tokens),),
    )


def _feature(estimate: Estimate, feature: Feature) -> float:
    return float(estimate.x[estimate.timing.plan.column(feature), 0])


def _peak(row: OperatorEstimate) -> str:
    rates = row.estimate.timing.rates
    return f"{rates.described} {row.dtype} peak of {rates.name}" if row.flops else ""


def _bandwidth(row: OperatorEstimate) -> str:
    rates = row.estimate.timing.rates
    return f"{rates.described} bandwidth of {rates.name}"


def number(value: float) -> str:
    """Print a number so that reading it back changes nothing that matters: integers whole, the rest to ten digits.

    >>> number(412316860416.0), number(3.2e-06), number(0.705)
    ('412316860416', '3.2e-06', '0.705')
    """
    return str(int(value)) if float(value).is_integer() and abs(value) < 2.0**63 else f"{value:.10g}"
