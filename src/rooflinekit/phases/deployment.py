"""Deployment: a model on a device at a precision under an engine; the object that people hold."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rooflinekit import units
from rooflinekit.errors import InvalidInputError
from rooflinekit.operators.forward import features
from rooflinekit.phases.chunked import chunked_prefill
from rooflinekit.phases.crossover import Crossover, compute_bound_batch, find_crossover, kv_parity_tokens
from rooflinekit.phases.estimate import Estimate
from rooflinekit.phases.memory import check_sizes
from rooflinekit.phases.request import Request, RequestSizes, plan_request
from rooflinekit.phases.row import Value
from rooflinekit.phases.settled import Settled
from rooflinekit.phases.verify import Commands, verify_commands
from rooflinekit.specs.step import Group, Real, all_positive, amount, checked, checked_group, describe, points_shape

if TYPE_CHECKING:
    import pandas as pd


class Deployment(Settled):
    """
    A model on a device: everything that an estimate needs, settled once.

    Parameters
    ----------
    model : str, Path, mapping or Model
        An id (``"qwen3-8b"``), Hub id, alias, path of a YAML file, or its keys.
    device : str, Path, mapping or Device
        An id (``"gb10"``), a unique prefix (``"h100-sxm"``), alias, path, or its keys.
    engine : str, optional
        ``"vllm"`` or ``"vllm-0.31"``: whose efficiency to prefer. None takes the device's default entry.
    weights : str, optional
        Format of the linear layers' weights (``"bf16"``, ``"fp8"``, ``"int8"``, ``"int4"``, ...): embedding, output
        layer and norms stay in the checkpoint's dtype. Or a recipe, which says what these and single layers are held
        in: a GGUF file type (``"q4_k_m"``, ``"q8_0"``), ``"mlx-4bit"``, ``"mlc-q4f16"``. None is the checkpoint's own.
    kv_cache : str, optional
        Dtype of the KV cache; None is the model's own dtype, whatever format the weights are in.
    compute : str, optional
        Arithmetic dtype of the products; None is what the format computes in (weight-only formats: 16 bits).
    efficiency : str or Efficiency
        ``"calibrated"`` (default), ``"measured"`` or ``"datasheet"`` (per-operator rooflines), or an Efficiency.
    routing_skew : float
        How unevenly a mixture's experts are chosen: exponent of their popularity by rank. 0 is uniform.
    memory_check : bool
        Whether a step whose weights and KV cache exceed the device's memory is an error.
    tensor_parallel, pipeline_parallel : int
        Devices that divide every layer; stages of layers that tokens pass one after another.
    expert_parallel : int
        Ranks among which whole experts are divided; what is left of the devices of a stage divides their width.
    data_parallel_attention : int
        Groups of devices that hold attention whole and serve sequences of their own; the experts are divided among
        all. Devices in all: `tensor_parallel` x `data_parallel_attention` x `pipeline_parallel`.
    expert_imbalance : float
        Load of the busiest expert-parallel rank over the mean.
    interconnect : str, mapping or Interconnect, optional
        Link between the devices: a name (``"pcie"``, ``"nvlink-bridge"``), or ``one_way_gb_per_s``, ``latency_us``,
        ``fraction`` and others to change. None is what devices of this kind are usually connected by.

    Raises
    ------
    UnknownNameError, AmbiguousNameError, SpecError, InvalidInputError, MissingFigureError
        A name, file or choice is wrong; each message says what to do.

    Notes
    -----
    Deployments compare equal by value. Estimates are service times: no queue, one step at a time. Where several devices
    work together, work and bytes are those of the busiest one.

    Examples
    --------
    >>> import rooflinekit as rk
    >>> d = rk.Deployment("qwen3-8b", "gb10")
    >>> d.kv_bytes_per_token
    147456.0
    >>> print(f"{d.with_(weights='int4').decode(context_tokens=2048).weight_bytes:.3g}")
    4.85e+09
    >>> d.with_(device="h200-sxm", tensor_parallel=2).kv_bytes_per_token
    73728.0
    """

    # ---- steps: everything below is a choice of groups

    def step(self, *groups: Group | tuple[Real, ...], busy_s: Real = 0.0, label: str | None = None) -> Estimate:
        r"""
        Estimate one forward pass over any mixture of sequences.

        Parameters
        ----------
        *groups : Group or tuple
            ``(new_tokens, context_tokens, sequences)`` each; numbers, or arrays that broadcast. A fourth entry is the
            number of sampled positions of each sequence (1).
        busy_s : float
            Compute-bound work just before the pass. [s] 0 after a rest, infinity in a loaded server.
        label : str, optional
            What the estimate calls itself.

        Returns
        -------
        estimate : Estimate

        Raises
        ------
        InvalidInputError
            A count is negative, not a number, or there is no group.
        DoesNotFitError
            Weights and KV cache exceed the device's memory, unless `memory_check` is off.

        Notes
        -----
        Weights are read once whatever the groups: :math:`t = \sum_r t_r(\sum_g \text{work}_{r,g})`.

        Examples
        --------
        A chunk of 512 prompt tokens rides with 32 decoding sequences; weights are read once for both:

        >>> import rooflinekit as rk
        >>> d = rk.Deployment("qwen3-8b", "gb10")
        >>> mixed = d.step((512, 0, 1), (1, 2048, 32))
        >>> mixed.weight_bytes == d.decode(context_tokens=2048, batch=32).weight_bytes
        True
        """
        whole = tuple(checked_group(group) for group in groups)
        if not whole:
            message = "a step needs at least one group: (new_tokens, context_tokens, sequences)"
            raise InvalidInputError(message)
        checked("busy_s", busy_s, infinite=True)
        if not all_positive(sum((amount(group.sequences) for group in whole), start=0.0)):
            message = "a step needs at least one sequence at every point: its groups' sequences sum to 0"
            raise InvalidInputError(message)
        counts = [value for group in whole for value in group]
        shape = points_shape(*counts, busy_s)
        if shape != points_shape(*counts):  # only the work just before differs: the same passes, once for each
            spread = np.broadcast_to(np.asarray(whole[0].new_tokens, dtype=np.float64), shape)
            whole = (whole[0]._replace(new_tokens=spread), *whole[1:])
        check_sizes(self, whole)
        x = features(self.plan.features, whole)
        busy = busy_s if shape == () else np.broadcast_to(np.asarray(busy_s, dtype=np.float64), shape).reshape(-1)
        return Estimate(self, label or describe(whole), self.timing, x, shape, busy, groups=whole)  # type: ignore[arg-type]

    def prefill(self, prompt_tokens: Real, *, cached_tokens: Real = 0, batch: Real = 1, busy_s: Real = 0.0) -> Estimate:
        r"""
        Estimate the pass that reads a prompt and samples its first output token.

        Parameters
        ----------
        prompt_tokens : Real
            Tokens of each prompt, the cached prefix included. [token]
        cached_tokens : Real
            Prefix whose K and V the cache already holds. [token]
        batch : Real
            Prompts in the pass. [1]
        busy_s : Real
            As in :meth:`step`. [s]

        Returns
        -------
        estimate : Estimate

        Raises
        ------
        InvalidInputError
            A size is not positive, or the prefix is not shorter than the prompt.

        Notes
        -----
        One group of `batch` sequences x (prompt - cached new, cached held). The output layer runs once a prompt.

        References
        ----------
        "Prefill vs. Decode" counts 28.5 TFLOP in the blocks' linear layers for 2,048 tokens of Qwen3-8B.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> p = rk.Deployment("qwen3-8b", "gb10").prefill(prompt_tokens=2048)
        >>> print(f"{sum(p.operator(o).flops for o in ('qkv_proj', 'o_proj', 'gate_up_proj', 'down_proj')):.4g}")
        2.845e+13
        """
        checked("prompt_tokens", prompt_tokens, positive=True)
        checked("batch", batch, positive=True)
        checked("cached_tokens", cached_tokens)
        points_shape(prompt_tokens, cached_tokens)
        new = amount(prompt_tokens) - amount(cached_tokens)
        if not all_positive(new):
            message = f"cached_tokens={cached_tokens!r}: expected fewer than prompt_tokens={prompt_tokens!r}"
            raise InvalidInputError(message)
        held = f" after {_amount(cached_tokens)} cached" if np.any(cached_tokens) else ""
        label = f"prefill {_amount(prompt_tokens)} tokens{held}{_batch(batch)}"
        return self.step(Group(new, cached_tokens, batch), busy_s=busy_s, label=label)

    def decode(self, context_tokens: Real, *, batch: Real = 1, busy_s: Real = 0.0) -> Estimate:
        r"""
        Estimate one decode step: every sequence writes one token.

        Parameters
        ----------
        context_tokens : Real
            Tokens in the cache of each sequence BEFORE the step; the step reads context + 1 rows of K and V. [token]
        batch : Real
            Sequences in the step. [1]
        busy_s : Real
            As in :meth:`step`. [s]

        Returns
        -------
        estimate : Estimate

        Raises
        ------
        InvalidInputError
            A size is negative or not a number, or the batch is not positive.

        References
        ----------
        "Prefill vs. Decode" counts 15.1 GB of weights and 302 MB of K and V for a step of Qwen3-8B at 2,048 tokens.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> d = rk.Deployment("qwen3-8b", "gb10")
        >>> s = d.decode(context_tokens=2048)
        >>> print(f"{s.weight_bytes:.3g} {s.kv_bytes:.3g}")
        1.51e+10 3.02e+08
        >>> d.decode(context_tokens=[512, 2048], batch=[[1], [8], [64]]).time_s.shape
        (3, 2)
        """
        checked("context_tokens", context_tokens)
        checked("batch", batch, positive=True)
        label = f"decode at {_amount(context_tokens)} tokens of context{_batch(batch)}"
        return self.step(Group(1, context_tokens, batch), busy_s=busy_s, label=label)

    def chunked_prefill(
        self, prompt_tokens: int, *, token_budget: int, cached_tokens: int = 0, busy_s: float = 0.0
    ) -> Estimate:
        """
        Estimate a prompt read in chunks of at most `token_budget` tokens; `.steps` has one estimate a pass.

        Parameters
        ----------
        prompt_tokens, token_budget, cached_tokens : int
            Prompt, most tokens in a pass (vLLM: ``max_num_batched_tokens``), prefix already cached. [token]
        busy_s : float
            As in :meth:`step`; later chunks add the compute work of earlier ones. [s]

        Returns
        -------
        estimate : Estimate
            The whole: FLOPs are those of one prefill, bytes include re-reading weights and earlier K and V.

        References
        ----------
        "Prefill vs. Decode": under a budget of 2,048 a 10,000-token prompt runs as five passes.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> len(rk.Deployment("qwen3-8b", "gb10").chunked_prefill(10_000, token_budget=2048).steps)
        5
        """
        return chunked_prefill(self, prompt_tokens, token_budget, cached_tokens=cached_tokens, busy_s=busy_s)

    def request(
        self, prompt_tokens: Real, *, output_tokens: Real, batch: Real = 1, cached_tokens: Real = 0, busy_s: Real = 0.0
    ) -> Request:
        """
        Estimate whole requests: one prefill, then decode steps over the growing context.

        Parameters
        ----------
        prompt_tokens, output_tokens, cached_tokens : Real
            Of each request; the prefill samples the first output token. [token]
        batch : Real
            Equal requests that run together. [1]
        busy_s : Real
            As in :meth:`step`, for the prefill and every step. [s]

        Returns
        -------
        request : Request
            ``.prefill``, ``.decode`` (all steps together), ``.time_to_first_token_s``, ``.time_per_output_token_s``,
            ``.end_to_end_s``. Service time only: no queue, no network.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> r = rk.Deployment("qwen3-8b", "gb10").request(prompt_tokens=2048, output_tokens=65)
        >>> r.decode.passes
        array([64])
        """
        sizes = RequestSizes(prompt_tokens, output_tokens, batch, cached_tokens, busy_s)
        return plan_request(self, sizes)

    # ---- where the phases turn

    @property
    def decode_ceiling_tokens_per_s(self) -> float:
        r"""
        Decode steps per second if reading the weights were all: the ceiling of one stream.

        Notes
        -----
        :math:`B / W`: bandwidth (the datasheet's, or the measured one under ``efficiency="measured"``) over the weight
        bytes of a step; K and V are left out.

        References
        ----------
        "Prefill vs decode: why token one lags": 209 tokens/s for 16 GB on an H100 SXM.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> lump = {"summary": {"parameters": 8_000_000_000, "layers": 32, "kv_heads": 8, "head_dim": 128}}
        >>> round(rk.Deployment(lump, "h100-sxm").decode_ceiling_tokens_per_s)
        209
        """
        step = self.with_(memory_check=False).decode(context_tokens=0)
        return self.timing.rates.bytes_per_s / float(step.weight_bytes)

    def crossover(self, scope: str = "products") -> Crossover:
        """
        Find the prompt length at which prefill leaves the memory roof.

        Parameters
        ----------
        scope : {"products", "pass"}
            The matrix products (and experts) of the blocks with their activations, or every operator of the pass.

        Returns
        -------
        crossover : Crossover
            ``tokens``, the closed form beside it, and the two rates used; infinity with a reason where there is none.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> c = rk.Deployment("qwen3-8b", "gb10", efficiency="measured").crossover()
        >>> round(c.closed_form_tokens)
        390
        """
        return find_crossover(self, scope)

    def compute_bound_batch(self, context_tokens: Real) -> Value:
        """
        Batch from which a decode step spends more time on arithmetic than on memory; infinity where it never does.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> d = rk.Deployment("qwen3-8b", "h200-sxm", efficiency="datasheet")
        >>> 200 < d.compute_bound_batch(context_tokens=128) < 1000
        True
        """
        return compute_bound_batch(self, context_tokens)

    def kv_parity_tokens(self, batch: Real = 1) -> Value:
        """
        Context at which a decode step reads as many bytes of K and V as of weights; infinity where it never does.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> round(rk.Deployment("qwen3-8b", "gb10").kv_parity_tokens(batch=32))
        3207
        """
        return kv_parity_tokens(self, batch)

    def batch_curve(self, context_tokens: float, batch: Sequence[float] = (1, 2, 4, 8, 16, 32, 64)) -> "pd.DataFrame":
        """
        Tabulate the decode step over batch sizes: a tidy DataFrame with step time, rates, bound, KV cache and fit.

        Examples
        --------
        >>> import rooflinekit as rk
        >>> curve = rk.Deployment("qwen3-8b", "gb10").batch_curve(context_tokens=2048)
        >>> bool(curve["tokens_per_s"].is_monotonic_increasing)
        True
        """
        from rooflinekit.phases.frames import batch_curve  # noqa: PLC0415 - pandas loads on first use

        return batch_curve(self, context_tokens, batch)

    def verify_commands(self, prompt_tokens: int, output_tokens: int, batch: int = 1) -> Commands:
        """List the engine's benchmark commands that measure these requests, each with what it should print."""
        return verify_commands(self, prompt_tokens, output_tokens, batch)


def _amount(value: Real) -> str:
    return units.count(float(value)) if np.ndim(value) == 0 else "many"  # type: ignore[arg-type]


def _batch(batch: Real) -> str:
    return "" if np.ndim(batch) == 0 and batch == 1 else f", batch {_amount(batch)}"
