"""
Chooses how alarms are raised: compares policies on the posts that a training held out, each with the threshold by
which it keeps the same bound on a risk, and sets one.

    tempoformer policy --model_name_or_path outputs/mine --watch Switch --alarm rate=0.1
    tempoformer policy --model_name_or_path outputs/mine --watch Switch --alarm rate=0.1 --set '{"cooldown_posts": 3}'

The policy is written as alarm_policy.json into the model's folder, where `tempoformer serve` and `tempoformer score`
find it. The model stays as it is, with an alarm by the threshold alone.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from transformers import AutoConfig

from modeling_tempoformer import AlarmGoal, check_cases, class_names, decide, read_held_out
from modeling_tempoformer.common.command_line import class_named, parse, read_overrides

from ..policy import POLICY_FILE, Alarm, policy_words, write_alarm
from ..policy_comparison import POLICIES, best_of, compare_policies, policies_table


@dataclass(kw_only=True)
class PolicyArguments:
    """The model, its class to watch, the bound that alarms must keep, and the policy to set."""

    model_name_or_path: str = field(metadata={"help": "The folder of a TempoFormer that was trained with --do_eval."})
    watch: str = field(metadata={"help": "The class whose posts are alarms."})
    alarm: str = field(
        metadata={
            "help": "What alarms must keep. rate=0.1: at most this share of new timelines without the class has an "
            "alarm; rate=0.1/30d: at most this share of their stretches of 30 days; missed=0.2: at most this share of "
            "a new timeline's changes is missed, in the mean."
        }
    )
    early: int = field(
        default=0, metadata={"help": "The number of posts before a change in which an alarm counts as early."}
    )
    set: dict | str | None = field(
        default=None, metadata={"help": "The policy to set, as a JSON object; {} for the threshold alone."}
    )

    def __post_init__(self):
        if not AlarmGoal.read(self.alarm).bounds_risk:
            raise ValueError(f"--alarm {self.alarm} is no rate that policies control: give rate=... or missed=...")
        if self.early < 0:
            raise ValueError(f"--early is a number of posts, 0 or more, got {self.early}.")
        self.set = read_overrides(self.set, "set")


def main(arguments: list[str]):
    (args,) = parse([PolicyArguments], arguments)
    timelines, probabilities = read_held_out(args.model_name_or_path)
    config, goal = (
        AutoConfig.from_pretrained(args.model_name_or_path, trust_remote_code=False),
        AlarmGoal.read(args.alarm),
    )
    label = class_named(args.watch, class_names(config), "watch")
    # A post's logarithms are its logits, but for a number that all of them share.
    logits = torch.from_numpy(np.log(np.maximum(probabilities, np.finfo(np.float64).tiny)))
    scores = decide(logits, config.calibration)[0][:, label].numpy()
    check_cases(timelines, label, args.watch, goal)
    policies = POLICIES if args.set is None else [args.set]
    rows = compare_policies(timelines, scores, label, goal, policies, args.early)
    if not any(row["rule"] for row in rows):
        raise ValueError(
            f"No threshold of this policy keeps --alarm {goal}: one that cools down or lasts silences alarms that "
            "would find a change. Ask for more, or give a rate."
        )
    print(policies_table(rows, timelines, args.watch, goal))
    if args.set is None:
        best = best_of(rows, goal)
        first = "None had the rate on other timelines" if best is None else f"The best that had it: {best + 1}"
        print(f"\n{first}. The same command with --set and its policy sets one.")
        return
    rule, measured = rows[0]["rule"], rows[0]["measured"]
    alarm = Alarm(label, rule.threshold, rule.policy)
    write_alarm(args.model_name_or_path, config, alarm, wanted=args.alarm, measured=measured)
    words = policy_words(rule.policy) or "no policy but the threshold"
    print(f"\n{POLICY_FILE} of {args.model_name_or_path}: {args.watch} from {rule.threshold} on; {words}.")
