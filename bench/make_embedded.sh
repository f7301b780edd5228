#!/usr/bin/env bash
# Makes the embedded policy again, from nothing but this repository: corpus, tokenizer, training, figures.
#
#   bench/make_embedded.sh [WORK]            # everything lies in WORK (default /tmp/embedded); the same command goes on where it was stopped
#
# What varies is given as variables: PYTHON, SIZE (14m), SEED (0), ROWS (40000 verified drafts at most), DATA_MINUTES (10), SFT_MINUTES (10),
# WORKERS (all cores), DEVICE (auto), TASKS (128), SAMPLES (10), KERNELBENCH (a checkout to measure on and to keep out of the data; none),
# RL_STEPS (30; steps of GRPO after the SFT, a minute for five on an H200 with 11 cores for each; 0 on a machine without a GPU), RL_SEEDS ("400 401"; of several there is a training each, one after the other, and their mean is the policy),
# DRAWN (400000; drafts straight from the generator besides, which no tool has judged), MISTAKES (300; repairs of mistakes that the policy which ships now makes by itself), REPAIRS (20; times that each repair is trained on), CORPUS (a corpus that is there already: no other is made), INSTALL=1 (put the result into policies/weights).
set -euo pipefail
cd "$(dirname "$0")/.."

WORK=${1:-/tmp/embedded}
PYTHON=${PYTHON:-python} SIZE=${SIZE:-14m} SEED=${SEED:-0} ROWS=${ROWS:-40000} DEVICE=${DEVICE:-auto}
DATA_MINUTES=${DATA_MINUTES:-10} SFT_MINUTES=${SFT_MINUTES:-10} TASKS=${TASKS:-128} SAMPLES=${SAMPLES:-10} DRAWN=${DRAWN:-400000} MISTAKES=${MISTAKES:-300} REPAIRS=${REPAIRS:-20} RL_STEPS=${RL_STEPS:-30} RL_SEEDS=${RL_SEEDS:-400 401}
WORKERS=${WORKERS:-$(nproc)} KERNELBENCH=${KERNELBENCH:-} INSTALL=${INSTALL:-}
rl() { "$PYTHON" -m kernelwright.rl "$@"; }
say() { printf '\n== %s (%s s)\n' "$*" "$SECONDS"; }
mkdir -p "$WORK"

against=()
[ -n "$KERNELBENCH" ] && against=(--against "kernelbench:$KERNELBENCH")

CORPUS=${CORPUS:-$WORK/clean}
if [ ! -d "$CORPUS" ]; then
    say "corpus: at most $ROWS verified drafts or $DATA_MINUTES minutes"
    # An interrupt ends it well, and what was verified is kept.
    timeout --signal INT --kill-after 60 "${DATA_MINUTES}m" "$PYTHON" -m kernelwright.rl data synth --n "$ROWS" --seed "$SEED" --workers "$WORKERS" --out "$WORK/synth" || [ $? -eq 124 ]
    if [ "$MISTAKES" -gt 0 ]; then
        say "$MISTAKES of the policy's own mistakes"
        [ -d "$WORK/mistakes" ] || rl data mistakes --policy embedded --n "$MISTAKES" --seed $((SEED + 31)) --samples 8 --workers "$WORKERS" --policy-device "$DEVICE" --out "$WORK/mistakes"
        for part in "$WORK"/mistakes/*.parquet; do cp "$part" "$WORK/synth/mistakes-$(basename "$part")"; done
    fi
    say "cleaning"
    rl data clean "$WORK/synth" --out "$WORK/clean" --workers "$WORKERS" "${against[@]}"
    rl data report "$WORK/clean" --out "$WORK/report" "${against[@]}"
fi

if [ ! -d "$WORK/tokenizer" ]; then
    say "tokenizer"
    [ -d "$WORK/idioms" ] || "$PYTHON" -m bench.drawn --n 20000 --out "$WORK/idioms" --workers "$WORKERS"
    rl tokenizer --data "$WORK/idioms" --out "$WORK/tokenizer" --vocabulary 4096
fi

if [ ! -d "$WORK/embedded" ]; then
    say "training new:$SIZE for $SFT_MINUTES minutes"
    rl sft --base "new:$SIZE" --preset scratch --data "$CORPUS" --tokenizer "$WORK/tokenizer" --out "$WORK/embedded" \
        --device "$DEVICE" --seed "$SEED" --max-minutes "$SFT_MINUTES" --drawn "$DRAWN" --repeat-repairs "$REPAIRS" --set num_train_epochs=1000 --storage bf16
fi

MADE=$WORK/embedded
if [ "$RL_STEPS" -gt 0 ]; then
    MADE=$WORK/trained
    each=()
    for seed in $RL_SEEDS; do
        each+=("transformers:$WORK/trained-$seed")
        [ -d "$WORK/trained-$seed" ] && continue
        say "$RL_STEPS steps of GRPO on problems of its own kind and deeper ones, seed $seed"
        rl train --online --policy "transformers:$WORK/embedded" --problems synth --problems synth:depth --max-steps "$RL_STEPS" \
            --seed "$seed" --device "$DEVICE" --reply-tokens 768 --lag 2 --set lr_scheduler_type=linear --set warmup_steps=3 --storage bf16 --out "$WORK/trained-$seed"
    done
    if [ "${#each[@]}" -eq 1 ]; then
        MADE=${each[0]#transformers:}
    elif [ ! -d "$MADE" ]; then
        say "the mean of ${#each[@]} trainings"
        rl average "${each[@]}" --out "$MADE"
    fi
fi

for suite in synth:composition synth:depth catalogue; do
    say "measuring on $suite"
    rl evaluate --policy "transformers:$MADE" --suite "$suite" --limit "$TASKS" --samples "$SAMPLES" --turns 4 \
        --device cpu --workers "$WORKERS" --at-once 512 --out "$WORK/evaluate-${suite//:/-}" \
        $([ "$suite" = synth:composition ] && echo --card)
done

say "the model is in $MADE; its card is its README.md"
if [ -n "$INSTALL" ]; then
    rm -f policies/weights/*
    cp "$MADE"/* policies/weights/
    say "it ships as policies/weights now"
fi
