"""The pipeline for whole timelines: decisions from logits, and what moved them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from transformers import Pipeline, PreTrainedConfig
from transformers.utils import logging

from .data_collator_tempoformer import StreamCollator, TimeColumn, cut_rows, tokenize_posts


def check_finite(logits: torch.Tensor, name_post: Callable[[int], str]):
    """
    Raises a `ValueError` that names the first post with a logit that is NaN or infinite: it would get the first class.

    Args:
        logits (`torch.Tensor` of shape `(posts, num_labels)`): As the model returns them. Waits for their device.
        name_post (`Callable[[int], str]`): The name of a post, by its place in `logits`.
    """
    wrong = (~logits.isfinite().all(-1)).nonzero()
    if len(wrong):
        post = int(wrong[0])
        raise ValueError(
            f"{name_post(post)} has the logits {logits[post].tolist()}, which decide nothing: the model's weights are "
            "broken, or too large for 16 bits."
        )


def decide(logits: torch.Tensor, calibration: dict[str, Any] | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Probabilities of the classes, and the classes of each post from the chosen one to the least likely.

    Args:
        logits (`torch.Tensor` of shape `(..., num_labels)`): As the model returns them.
        calibration (`dict`, *optional*): The field of the model's configuration; without it the largest logit wins.

    Returns:
        Probabilities in 32 bits or more and class ids (`torch.LongTensor`), both of the shape of `logits`.
    """
    calibration = calibration or {}
    probabilities = class_probabilities(logits, calibration.get("temperature"))
    return probabilities, rank_classes(probabilities, calibration.get("thresholds"))


def class_probabilities(logits: torch.Tensor, temperature: float | None = None) -> torch.Tensor:
    """
    `softmax(logits / temperature)` (Guo et al., 2017, section 4.2), in 32 bits or more.

    Args:
        logits (`torch.Tensor` of shape `(..., num_labels)`): As the model returns them.
        temperature (`float`, *optional*): Positive; above 1 softens, below 1 sharpens. 1 if omitted.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return (logits if temperature is None else logits / temperature).softmax(-1)


def log_odds(logits: torch.Tensor, calibration: dict[str, Any] | None = None) -> torch.Tensor:
    """`log(p / (1 - p))` of the probabilities `p` that [`decide`] returns, also where they are rounded to 0 or 1."""
    logits = logits.double() / ((calibration or {}).get("temperature") or 1.0)
    itself = torch.eye(logits.shape[-1], dtype=torch.bool, device=logits.device)
    return logits - logits.unsqueeze(-2).masked_fill(itself, -torch.inf).logsumexp(-1)


def rank_classes(probabilities: torch.Tensor, thresholds: Sequence[float] | None = None) -> torch.Tensor:
    """
    The classes of each post by probability / threshold, largest first; of equal ones the lower id comes first. With
    equal thresholds the most probable class wins; with thresholds (1 - t, t) the second of two classes wins where its
    probability is above t.

    Args:
        probabilities (`torch.Tensor` of shape `(..., num_labels)`): As [`class_probabilities`] returns them.
        thresholds (`Sequence[float]`, *optional*): One positive number for each class; only their ratios count. All
            equal if omitted.

    Returns:
        `torch.LongTensor` of the shape of `probabilities`.
    """
    if thresholds is not None:
        # In 64 bits: a tuned threshold may lie between two probabilities that are neighbours in 32.
        thresholds = torch.tensor(thresholds, dtype=torch.float64, device=probabilities.device)
        probabilities = probabilities.double() / thresholds
    return probabilities.argsort(dim=-1, descending=True, stable=True)


def explain_streams(
    model: torch.nn.Module,
    stream_index: torch.LongTensor,
    elapsed: torch.FloatTensor | None = None,
    place: torch.FloatTensor | None = None,
    **posts: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """
    Logits of streams, and of the same streams with one thing changed: `forward` on the same posts with more streams.
    Without a post, those before it move up by one place, and one older post enters. No more streams are read at a time
    than the batch has, so that this takes no more memory than plain prediction.

    Args:
        model (`PreTrainedModel`): A model of streams, in evaluation mode.
        stream_index, elapsed, place, posts:
            A batch of [`StreamCollator`] with a window of one post more than the model's: the oldest post of each
            stream is the one that enters. A post keeps its place without the posts before it.

    Returns:
        `logits` (batch_size, num_streams, window + 3, num_labels): of the stream itself; without each of its posts but
        the newest, oldest first; with the post before the newest once more in the newest one's place and time; with
        no time between these two; and at the beginning of the timeline. `attention` (batch_size, num_streams,
        num_stream_layers, window), from the newest post to each post of its stream, oldest first, mean over heads. The
        values of absent posts mean nothing.
    """
    window, num_streams = model.config.window, stream_index.shape[1]
    posts = model.base_model.post_inputs(**posts)
    slots = torch.arange(window, device=stream_index.device)
    # The slots that are left without each. The first slot has the post that enters: without it a stream is as usual.
    # So are the last three, but for what is set below.
    kept = torch.cat((slots + (slots >= slots.unsqueeze(-1)), (slots + 1).expand(3, -1)))
    repeated, at_once, at_first = range(window, window + 3)
    # Not computed where there is no post to leave out.
    is_absent = nn.functional.pad((stream_index[..., :window] < 0) & (slots > 0), (0, 3))
    streams = stream_index[..., kept].masked_fill(is_absent.unsqueeze(-1), -1)
    previous, newest = stream_index[..., -2], stream_index[..., -1]
    streams[..., repeated, -1] = previous.where(previous >= 0, newest)
    # As `forward` takes them: (batch_size, streams, ...), those of a post one after the other.
    inputs = {"stream_index": streams}
    if place is not None:
        inputs["place"] = place.unsqueeze(2).repeat(1, 1, len(kept), 1)
        inputs["place"][:, :, at_first] = 0.0
    if elapsed is not None:
        inputs["elapsed"], gap = elapsed[..., kept], elapsed[..., -2]
        inputs["elapsed"][:, :, at_once] = (inputs["elapsed"][:, :, at_once] - gap.unsqueeze(-1)).clamp_min(0.0)
        if place is not None:
            inputs["place"][:, :, at_once, 1] -= gap
    logits, attention = [], []
    step = max(1, num_streams // len(kept))
    for first in range(0, num_streams, step):
        part = slice(first, first + step)
        output = classify(model, posts, **{name: values[:, part].flatten(1, 2) for name, values in inputs.items()})
        logits.append(output.logits.unflatten(1, (-1, len(kept))))
        # From the newest post of the usual streams.
        of_layers = [
            weights[:, :: len(kept), :, -1].float().mean(2).to(stream_index.device)
            for weights in output.stream_attentions
        ]
        attention.append(
            torch.stack(of_layers, 2) if of_layers else logits[-1].new_zeros(*logits[-1].shape[:2], 0, window)
        )
    return {"logits": torch.cat(logits, 1), "attention": torch.cat(attention, 1)}


def classify(
    model: torch.nn.Module, posts: dict[str, torch.Tensor], stream_index: torch.LongTensor, **streams: torch.Tensor
) -> torch.nn.Module:
    """The output for streams (batch_size, some, window), from the posts that they have and no others."""
    num_posts = posts["attention_mask"].shape[1]
    first = min(int(stream_index.where(stream_index >= 0, num_posts).min()), num_posts - 1)
    end = max(int(stream_index.max()), first) + 1
    return model(
        **{name: values[:, first:end] for name, values in posts.items()},
        stream_index=stream_index.where(stream_index < 0, stream_index - first),
        **streams,
        output_stream_attentions=True,
    )


def explain_timeline(
    timeline: dict, outputs: dict[str, torch.Tensor], config: PreTrainedConfig, calibrated: bool = True
) -> list[dict]:
    """
    The explanation of each post of a timeline, in plain Python.

    Args:
        timeline (`dict`): Its `texts`, its `times` in seconds or None, and `order`, its posts from oldest to newest.
        outputs (`dict[str, torch.Tensor]`):
            What [`explain_streams`] returns for these posts, from oldest to newest, without the first axis.
        config (`PreTrainedConfig`): The model's.
        calibrated (`bool`, *optional*, defaults to `True`): Whether to apply the calibration, if there is one.

    Returns:
        A dict for each post, in the order of the input, as [`StreamClassificationPipeline.explain`] describes it.
    """
    texts, times, order = timeline["texts"], timeline["times"], timeline["order"]
    calibration = config.calibration if calibrated else None
    all_probabilities, all_ranked = decide(outputs["logits"], calibration)
    probabilities, ranked = all_probabilities[:, 0], all_ranked[:, 0]
    measured = {"effects": all_probabilities, "log_odds_effects": log_odds(outputs["logits"], calibration)}
    effects = {name: (of[:, :1] - of[:, 1:]).transpose(1, 2).tolist() for name, of in measured.items()}
    names = [config.id2label[label] for label in range(config.num_labels)]
    results: list = [None] * len(order)
    for place, (post, scores, attention) in enumerate(
        zip(order, probabilities.tolist(), outputs["attention"].tolist(), strict=True)
    ):
        stream = order[max(0, place - config.window + 1) : place + 1]
        absent = config.window - len(stream)
        label = int(ranked[place, 0])
        results[post] = {
            "text": texts[post],
            "timestamp": None if times is None else times[post],
            "label": names[label],
            "score": scores[label],
            "probabilities": dict(zip(names, scores, strict=True)),
            "stream": stream,
            "attention": [weights[absent:] for weights in attention],
            **{
                measure: {name: of_class[absent:] for name, of_class in zip(names, of_posts[place], strict=True)}
                for measure, of_posts in effects.items()
            },
        }
    return results


logger = logging.get_logger(__name__)


class StreamClassificationPipeline(Pipeline):
    """
    Classifies every post of timelines in the context of the posts before it (Tseriotou, Tsakalidis and Liakata, 2024).

        pipe = pipeline("stream-classification", model=folder_or_hub_id, trust_remote_code=True)
        pipe({"text": ["so happy today", "leave me alone"], "timestamp": ["2024-05-01", "2024-05-02T22:10"]})
        # [{"label": "No-Switch", "score": 0.98}, {"label": "Switch", "score": 0.91}]

    A timeline is a dict with `text`, a list of strings, and optionally `timestamp`, a list of the same length that
    holds ISO-8601 strings (UTC without a zone), seconds, or datetimes. Posts that are out of order are sorted by time,
    with one warning; results come in the order of the input.

    A score is the probability of the label that is returned, calibrated if the model is; with decision thresholds the
    label is the one whose probability is largest relative to its threshold, so that another can have a larger score.

    A call with one timeline returns a list with a dict for each post; with a list of timelines, a list of such lists;
    with any other iterable, an iterator that reads it as it goes. The options can be given to a call or to the
    constructor. `explain` says which earlier posts a label came from.

    Args:
        batch_size (`int`, *optional*, defaults to 8):
            The number of rows in a batch, at least 1; rows of different timelines share batches.
        targets_per_row (`int`, *optional*, defaults to 64):
            The number of posts classified in a row, at least 1; fewer take less memory.
        top_k (`int`, *optional*):
            At least 1. Return a list of the `top_k` best labels of each post, best first, instead of the best one.
        calibrated (`bool`, *optional*):
            Whether to apply the `calibration` of the model's configuration: its temperature to the scores, and its
            thresholds to the ranks of labels. By default it is applied if the model has one; `True` raises a
            `ValueError` if the model has none.
    """

    _load_processor = False
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = True
    default_batch_size = 8

    def _sanitize_parameters(
        self, targets_per_row: int | None = None, top_k: int | None = None, calibrated: bool | None = None
    ):
        preprocess = {} if targets_per_row is None else {"targets_per_row": targets_per_row}
        postprocess: dict[str, Any] = {} if top_k is None else {"top_k": top_k}
        if top_k is not None and top_k < 1:
            raise ValueError(f"`top_k` must be at least 1, got {top_k}.")
        if calibrated and not self.model.config.calibration:
            raise ValueError("`calibrated=True` needs a `calibration` in the model's configuration, which has none.")
        if calibrated is not None:
            postprocess["calibrated"] = calibrated
        return preprocess, {}, postprocess

    def __call__(self, inputs: dict | Iterable[dict], batch_size: int | None = None, **kwargs):
        """
        Classifies timelines.

        Args:
            inputs (`dict`, or an iterable of them): A timeline, a list of timelines, or any other iterable of them.
            batch_size (`int`, *optional*): Overrides the constructor's value; so do the other options.
            kwargs: `targets_per_row`, `top_k`, `calibrated`.

        Returns:
            For a timeline, a list with a dict of `label` and `score` (0 to 1) for each post, in the order of the
            input; for a list, a list of these; for any other iterable, an iterator. Raises a `ValueError` that names
            the timeline, the post and the value for input that is not a timeline, and for logits that are not finite.
        """
        return self.answer(inputs, batch_size, kwargs)

    def explain(
        self,
        inputs: dict | Iterable[dict],
        batch_size: int | None = None,
        targets_per_row: int | None = None,
        calibrated: bool | None = None,
    ):
        """
        Classifies timelines, and says what the labels came from: by changing one thing at a time, which is a
        measurement, and by attention, which is what the model looked at and not what moved it.

        Args:
            inputs (`dict`, or an iterable of them): A timeline, a list of timelines, or any other iterable of them.
            batch_size, targets_per_row, calibrated: As in the constructor.

        Returns:
            For a timeline, a list with a dict for each post, in the order of the input; for a list, a list of these;
            for any other iterable, an iterator. All is plain Python. The keys:

            - `text`, a string, and `timestamp`, in seconds, None without times.
            - `label` and `score`, as a call returns them.
            - `probabilities`, a dict from each class to its probability, calibrated as the score is.
            - `stream`, a list of the posts of its stream: indices in the input, oldest first, the post itself last.
            - `attention`, for each stream layer a list with one number for each post of `stream`: how much the post
              looked at it, mean over heads, summing to 1.
            - `effects`, a dict from each class to a list: the probability of the class minus what it would be if one
              thing were otherwise. First, for each earlier post of `stream`, had it never been written (leave one
              out): then the posts before it move up by one, and one older post enters. Then had the post itself said
              what the post before it said; had it come at once after that one; and were it said to be the first of
              its timeline, which the trees of the post model read. 0 where there is no post before, or where the model
              does not read it.
            - `log_odds_effects`, the same of the log-odds `log(p / (1 - p))`, which tell effects apart also where a
              probability is close to 0 or 1.

            Raises the errors of a call.
        """
        options = {"targets_per_row": targets_per_row, "calibrated": calibrated}
        return self.answer(inputs, batch_size, options, explains=True)

    def answer(
        self, inputs: dict | Iterable[dict], batch_size: int | None, options: dict[str, Any], explains: bool = False
    ):
        """What a call or `explain` returns for one timeline, a list or another iterable."""
        preprocess, _, postprocess = self._sanitize_parameters(**options)
        for size in (batch_size, self._batch_size):
            if size is not None and size < 1:
                raise ValueError(f"`batch_size` must be at least 1, got {size}.")
        settings = (
            batch_size or self._batch_size or self.default_batch_size,
            {**self._preprocess_params, **preprocess},
            {**self._postprocess_params, **postprocess},
            explains,
        )
        if isinstance(inputs, dict):
            return next(self.classify([inputs], *settings))
        if isinstance(inputs, str) or not isinstance(inputs, Iterable):
            raise ValueError(f"A timeline must be a dict with a list of strings as 'text', got {inputs!r:.80}.")
        if not isinstance(inputs, (list, tuple)):
            return self.classify(inputs, *settings)
        doing = "Explaining" if explains else "Classifying"
        with logging.tqdm(total=len(inputs), desc=f"{doing} timelines", disable=len(inputs) < 100) as bar:
            results = []
            for result in self.classify(inputs, *settings):
                results.append(result)
                bar.update()
        return results

    def classify(
        self, timelines: Iterable[dict], batch_size: int, preprocess: dict, postprocess: dict, explains: bool
    ) -> Iterator[list[dict]]:
        """Yields the results of each timeline as soon as all its rows are classified."""
        waiting: list[dict] = []  # timelines with rows that are not classified yet
        rows: list[tuple[dict, dict]] = []  # (timeline, row) of the next batch
        for number, timeline in enumerate(timelines):
            entry = self.preprocess(timeline, number=number, explains=explains, **preprocess)
            waiting.append(entry)
            for row in entry["rows"]:
                if rows and ("timestamps" in row) != ("timestamps" in rows[0][1]):
                    self.run(rows, explains)
                rows.append((entry, row))
                if len(rows) == batch_size:
                    self.run(rows, explains)
            yield from self.finished(waiting, postprocess, explains)
        self.run(rows, explains)
        yield from self.finished(waiting, postprocess, explains)

    def preprocess(
        self, timeline: Any, number: int = 0, targets_per_row: int = 64, explains: bool = False
    ) -> dict[str, Any]:
        """
        The number, texts, times and rows of a timeline, the order of its posts in time, a list for the outputs of its
        rows, and how many posts were truncated.
        """
        texts, times = read_timeline(timeline, number)
        order = list(range(len(texts)))
        if times is not None:
            order.sort(key=times.__getitem__)
            if order != sorted(order):
                logger.warning_once("Sorting the posts of timelines by time; results keep the order of the input.")
        if targets_per_row < 1:
            raise ValueError(f"`targets_per_row` must be at least 1, got {targets_per_row}.")
        limit = min(self.tokenizer.model_max_length, self.model.base_model.max_tokens)
        sorted_times = None if times is None else [times[post] for post in order]
        try:
            columns, cut = tokenize_posts(self.tokenizer, [texts[post] for post in order], limit, sorted_times)
        except ValueError as problem:
            raise ValueError(f"Timeline {number}, {problem}") from None
        if cut:
            logger.warning(f"Timeline {number}: truncated {cut} posts to {limit} tokens.")
        if sorted_times is not None:
            columns["timestamps"] = sorted_times
        rows = list(cut_rows(columns, self.model.config.window + explains, targets_per_row))
        entry = {"number": number, "texts": texts, "times": times, "rows": rows, "order": order, "outputs": []}
        return {**entry, "truncated": cut}

    def run(self, rows: list[tuple[dict, dict]], explains: bool):
        """Classifies a batch of rows, adds the outputs to the timelines, and empties the batch."""
        if not rows:
            return
        timed = "timestamps" in rows[0][1]
        # One post more: without a post of a stream, one that is older enters.
        collator = StreamCollator(self.tokenizer, self.model.config.window + explains, timed=timed)
        outputs = self.forward(dict(collator([row for _, row in rows])), explains=explains)
        for place, (entry, row) in enumerate(rows):
            num_targets = len(row["input_ids"]) - row["num_context"]
            entry["outputs"].append({name: tensor[place, :num_targets] for name, tensor in outputs.items()})
        rows.clear()

    def _forward(self, model_inputs: dict[str, torch.Tensor], explains: bool = False) -> dict[str, torch.Tensor]:
        if explains:
            return explain_streams(self.model, **model_inputs)
        return {"logits": self.model(**model_inputs).logits}

    def finished(self, waiting: list[dict], postprocess: dict, explains: bool) -> Iterator[list[dict]]:
        """Yields the results of timelines at the front of `waiting` that are done, and removes them from it."""
        while waiting and len(waiting[0]["outputs"]) == len(waiting[0]["rows"]):
            yield self.postprocess(waiting.pop(0), explains=explains, **postprocess)

    def postprocess(
        self, timeline: dict, top_k: int | None = None, calibrated: bool = True, explains: bool = False
    ) -> list:
        """A dict, or with `top_k` a list of dicts, for each post in the order of the input."""
        order, config = timeline["order"], self.model.config
        results: list = [None] * len(order)
        if not results:
            return results
        outputs = {name: torch.cat([row[name] for row in timeline["outputs"]]) for name in timeline["outputs"][0]}
        logits = outputs["logits"].flatten(0, -2)
        check_finite(
            logits, lambda place: f"Timeline {timeline['number']}, post {order[place * len(order) // len(logits)]}"
        )
        if explains:
            return explain_timeline(timeline, outputs, config, calibrated)
        scores, labels = decide(logits, config.calibration if calibrated else None)
        best_labels = labels[:, : top_k or 1]
        best_scores = scores.gather(-1, best_labels)
        names = config.id2label
        for post, post_scores, post_labels in zip(order, best_scores.tolist(), best_labels.tolist(), strict=True):
            ranked = [
                {"label": names[label], "score": score} for score, label in zip(post_scores, post_labels, strict=True)
            ]
            results[post] = ranked[0] if top_k is None else ranked
        return results


def read_timeline(timeline: Any, number: int) -> tuple[list[str], list[float] | None]:
    """
    The texts of a timeline and their times in seconds, None without times. Raises a `ValueError` that names the
    timeline, the post and the value.
    """
    if not isinstance(timeline, dict) or not isinstance(timeline.get("text"), (list, tuple)):
        raise ValueError(f"Timeline {number} must be a dict with a list of strings as 'text', got {timeline!r:.80}.")
    if unknown := sorted(set(timeline) - {"text", "timestamp"}):
        raise ValueError(f"Timeline {number} has unknown keys: {', '.join(map(str, unknown))}.")
    texts = list(timeline["text"])
    for post, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"Timeline {number}, post {post}: text {text!r} is not a string.")
    if timeline.get("timestamp") is None:
        return texts, None
    if not isinstance(timeline["timestamp"], (list, tuple)):
        raise ValueError(f"Timeline {number}: 'timestamp' must be a list, got {timeline['timestamp']!r:.80}.")
    if len(timeline["timestamp"]) != len(texts):
        raise ValueError(f"Timeline {number} has {len(timeline['timestamp'])} timestamps for {len(texts)} texts.")
    column, times = TimeColumn(), []
    for post, value in enumerate(timeline["timestamp"]):
        try:
            times.append(column.read(f"post {post}", value))
        except ValueError as problem:
            raise ValueError(f"Timeline {number}, post {post}: timestamp {value!r}: {problem}.") from None
    if column.warning:
        logger.warning_once(f"Timeline {number}: {column.warning}")
    return texts, None if None in times else times
