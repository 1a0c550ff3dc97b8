"""Writes a small language model with random weights: nothing of it was trained, and nothing of it comes
from anywhere. What it says is noise; how a server streams noise is what is wanted.

usage: model.py gguf FILE     for llama.cpp's server (package gguf)
       model.py hf FOLDER     config.json and a tokenizer, for servers that fill in weights themselves
                              (package tokenizers)
"""

import json
import pathlib
import sys

WORDS = (
    "the of and to in is that it was for on are with as his they be at one have this from or had by but "
    "some what there we can out other were all your when up use word how said an each she which do their "
    "time if will way about many then them would write like so these her long make thing see him two has"
).split()
CONTEXT, WIDTH, LAYERS, HEADS, INNER = 2048, 256, 2, 4, 512
TEMPLATE = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


def pieces():
    """The vocabulary: special tokens, every byte, and some words."""
    yield from [("<unk>", 2), ("<s>", 3), ("</s>", 3)]
    for byte in range(256):
        yield f"<0x{byte:02X}>", 6
    for word in WORDS:
        yield "\u2581" + word, 1


def gguf_file(path):
    import gguf
    import numpy

    random = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("noise")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    vocabulary = list(pieces())
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text.encode() for text, _ in vocabulary])
    writer.add_token_scores([-float(number) for number in range(len(vocabulary))])
    writer.add_token_types([kind for _, kind in vocabulary])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)

    def matrix(name, *shape):
        values = random.standard_normal(shape, dtype=numpy.float32) / shape[-1] ** 0.5
        writer.add_tensor(name, values.astype(numpy.float16))

    def ones(name):
        writer.add_tensor(name, numpy.ones(WIDTH, dtype=numpy.float32))

    matrix("token_embd.weight", len(vocabulary), WIDTH)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        ones(block + "attn_norm.weight")
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"{block}{name}.weight", WIDTH, WIDTH)
        ones(block + "ffn_norm.weight")
        matrix(block + "ffn_gate.weight", INNER, WIDTH)
        matrix(block + "ffn_up.weight", INNER, WIDTH)
        matrix(block + "ffn_down.weight", WIDTH, INNER)
    ones("output_norm.weight")
    matrix("output.weight", len(vocabulary), WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def hf_folder(path):
    import tokenizers

    folder = pathlib.Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {text: number for number, (text, _) in enumerate(pieces())}
    model = tokenizers.models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>", byte_fallback=True)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.ByteFallback(), tokenizers.decoders.Replace("\u2581", " "), tokenizers.decoders.Fuse()]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": CONTEXT,
        "vocab_size": len(vocabulary),
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**names, "chat_template": TEMPLATE}))


{"gguf": gguf_file, "hf": hf_folder}[sys.argv[1]](sys.argv[2])
