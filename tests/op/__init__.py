"""Example specs of every op and one way to run networks, shared by the suites of this folder."""

from __future__ import annotations

import io

import numpy as np
import onnx
import onnxruntime

from hwbench.network import Network, OpSpec, Setting
from hwbench.op.base import write_model

EXAMPLES = tuple(
    OpSpec.parse(key)
    for key in (
        "add(dim=6,tokens=5)",
        "attention_block(dim=12,head_dim=8,heads=3,norm=pre,qkv=fused,tokens=5)",
        "attention_block(dim=12,head_dim=4,heads=3,norm=post,qkv=separate,tokens=5)",
        "attention_block(dim=12,head_dim=4,heads=1,norm=post,qkv=fused,tokens=1)",
        "class_token(dim=6,tokens=5)",
        "classifier_head(classes=7,dim=6,tokens=5)",
        "conv2d(groups=1,height=9,in=3,kernel=3,out=8,padding=1,stride=2,width=8)",
        "conv2d(groups=8,height=7,in=8,kernel=5,out=8,padding=2,stride=1,width=7)",
        "dense(in=6,out=4)",
        "embedding(dim=6,tokens=5,vocabulary=11)",
        "ffn_block(activation=gelu,dim=6,hidden=20,norm=pre,tokens=5)",
        "ffn_block(activation=relu,dim=6,hidden=4,norm=post,tokens=5)",
        "flatten_patches(dim=6,height=3,width=4)",
        "gelu(dim=6,tokens=5)",
        "layernorm(dim=6,tokens=5)",
        "linear(in=6,out=4,tokens=5)",
        "matmul(form=plain,heads=2,k=3,m=4,n=5)",
        "matmul(form=scores,heads=2,k=3,m=4,n=5)",
        "merge_heads(head_dim=4,heads=3,tokens=5)",
        "patch_embedding(channels=3,dim=6,image=12,patch=4)",
        "pooled_head(classes=3,dim=6,tokens=5)",
        "position(dim=6,length=5,tokens=5)",
        "position(dim=6,length=9,tokens=5)",
        "relu(dim=6,tokens=5)",
        "segment(dim=6,tokens=5)",
        "select_token(dim=6,tokens=5)",
        "softmax(heads=2,m=3,n=5)",
        "split_heads(head_dim=4,heads=3,parts=1,tokens=5)",
        "split_heads(head_dim=4,heads=3,parts=3,tokens=5)",
        "tanh(dim=6)",
        "token_embedding(dim=6,length=9,tokens=5,vocabulary=11)",
    )
)


def random_inputs(network: Network, batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        t.name: rng.standard_normal((batch, *t.shape), np.float32)
        if t.high is None
        else rng.integers(0, t.high, (batch, *t.shape))
        for t in network.inputs
    }


def model_of(network: Network, batch: int = 1, weights: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    stream = io.BytesIO()
    write_model(network, Setting(batch=batch), stream, weights)
    return onnx.load_from_string(stream.getvalue())


def session_of(model: bytes | str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
