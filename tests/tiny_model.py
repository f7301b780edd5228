"""A Qwen3 of 0.1 M random weights with its own small BPE: every real code path of a language model, in seconds.

Imported as `tests.tiny_model`; `save_tiny_model(tmp_path / "tiny")` gives the folder.
"""

from __future__ import annotations

from pathlib import Path

TEXTS = (
    "import torch\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\n"
    "def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):\n    pid = tl.program_id(0)\n"
    "    offsets = pid * BLOCK + tl.arange(0, BLOCK)\n    mask = offsets < n\n"
    "    x = tl.load(x_ptr + offsets, mask=mask)\n    y = tl.load(y_ptr + offsets, mask=mask)\n"
    "    tl.store(out_ptr + offsets, x + y, mask=mask)\n",
    "@triton.jit\ndef softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):\n    row = tl.program_id(0)\n"
    "    column = tl.arange(0, BLOCK)\n    x = tl.load(x_ptr + row * columns + column, mask=column < columns,"
    ' other=-float("inf"))\n    e = tl.exp(x - tl.max(x, axis=0))\n'
    "    tl.store(out_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=column < columns)\n",
    "class ModelNew(nn.Module):\n    def forward(self, x, y):\n        out = torch.empty_like(x)\n"
    "        add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)\n        return out\n",
    "Write a Triton kernel that does what this reference does. The last one did not compile: at line 5.",
)
SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONTEXT = 512


def save_tiny_model(folder: Path, seed: int = 0, context: int = CONTEXT) -> Path:
    """A whole transformers model: weights, config, tokenizer, chat template, generation config."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = tiny_tokenizer()
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def tiny_tokenizer():  # type: ignore[no-untyped-def]  # transformers is imported only by who needs it
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=384,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(TEXTS * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token="<|pad|>",
        eos_token="<|im_end|>",
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
    )


def save_tiny_adapter(model: Path, folder: Path, seed: int = 1, strength: float = 0.5) -> Path:
    """A LoRA adapter for the tiny model that really changes what it says (peft starts B at zero: here it is drawn)."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model)
    adapted = get_peft_model(
        base,
        LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    )
    torch.manual_seed(seed)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=strength)
    adapted.save_pretrained(folder)
    return folder
