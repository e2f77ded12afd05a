"""Example specs of every op and one way to run networks, shared by the suites of this folder."""

from __future__ import annotations

from hwbench.network.spec import OpSpec
from hwbench.testing.op import model_of, random_inputs, session_of, whole

__all__ = ["BATCHED", "EXAMPLES", "model_of", "random_inputs", "session_of", "whole"]

EXAMPLES = tuple(
    OpSpec.parse(key)
    for key in (
        "add(dim=6,tokens=5)",
        "attention_block(dim=12,head_dim=8,heads=3,norm=pre,qkv=fused,tokens=5)",
        "attention_block(dim=12,head_dim=4,heads=3,norm=post,qkv=separate,tokens=5)",
        "attention_block(dim=12,head_dim=4,heads=1,norm=post,qkv=fused,tokens=1)",
        "average_pool(channels=3,height=7,stride=2,width=8)",
        "average_pool(channels=3,height=8,stride=2,width=9)",
        "average_pool_same(channels=3,height=5,kernel=3,width=4)",
        "class_token(dim=6,tokens=5)",
        "classifier_head(classes=7,dim=6,tokens=5)",
        "conv_block(height=9,in=3,kernel=3,out=8,stride=2,width=8)",
        "conv2d(groups=1,height=9,in=3,kernel=3,out=8,padding=1,stride=2,width=8)",
        "conv2d(groups=8,height=7,in=8,kernel=5,out=8,padding=2,stride=1,width=7)",
        "dense(in=6,out=4)",
        "embedding(dim=6,tokens=5,vocabulary=11)",
        "ffn_block(activation=gelu,dim=6,hidden=20,norm=pre,tokens=5)",
        "ffn_block(activation=relu,dim=6,hidden=4,norm=post,tokens=5)",
        "ffn_block(activation=silu,dim=6,hidden=12,norm=pre,tokens=5)",
        "flatten_map(channels=6,height=3,width=4)",
        "flatten_patches(dim=6,height=3,width=4)",
        "gelu(dim=6,tokens=5)",
        "global_pool(channels=6,height=3,width=4)",
        "kernel(attributes=alpha.f.0p5-transB.i.1,inputs=f5x6_w4x6_w4,outputs=f5x4,type=Gemm,version=13)",
        "kernel(attributes=activation.s.Relu-group.i.1-kernel_shape.l.3.3-pads.l.1.1.1.1-strides.l.2.2,"
        "inputs=f1x16x6x6_w32x16x3x3_w32_f1x32x3x3,outputs=f1x32x3x3,type=com.microsoft.nchwc.Conv,version=1)",
        "kernel(attributes=perm.l.0.2.1.3,inputs=f2x3x4x5,outputs=f2x4x3x5,type=Transpose,version=13)",
        "kernel(attributes=none,inputs=f2x9x3_vl1_vl9223372036854775807_vl1_vl2,outputs=f2x4x3,type=Slice,version=13)",
        "kernel(attributes=axis.i.0,inputs=w11x6_i2x5,outputs=f2x5x6,type=Gather,version=13)",
        "kernel(attributes=none,inputs=b2x1x5_cn1p5_f2x3x5,outputs=f2x3x5,type=Where,version=16)",
        "kernel(attributes=axis.i.n1,inputs=f2x3x6_vl2.4,outputs=f2x3x2_f2x3x4,type=Split,version=18)",
        "layernorm(dim=6,tokens=5)",
        "linear(in=6,out=4,tokens=5)",
        "map_add(channels=6,height=3,width=4)",
        "map_head(classes=7,height=3,in=6,width=4)",
        "map_norm(channels=6,height=3,width=4)",
        "map_relu(channels=6,height=3,width=4)",
        "map_silu(channels=6,height=3,width=4)",
        "map_zero(channels=6,height=3,width=4)",
        "matmul(form=plain,heads=2,k=3,m=4,n=5)",
        "matmul(form=scores,heads=2,k=3,m=4,n=5)",
        "mbconv_block(gives=map,height=6,hidden=8,in=8,kernel=5,out=8,se=no,stride=1,takes=map,width=5)",
        "mbconv_block(gives=tokens,height=6,hidden=8,in=8,kernel=3,out=12,se=no,stride=1,takes=map,width=5)",
        "mbconv_block(gives=tokens,height=7,hidden=44,in=8,kernel=3,out=12,se=yes,stride=2,takes=tokens,width=8)",
        "mbconv_block(gives=map,height=8,hidden=32,in=8,kernel=5,out=8,se=no,stride=2,takes=tokens,width=8)",
        "mbpool_head(classes=7,height=3,hidden=24,in=6,out=10,width=4)",
        "merge_heads(head_dim=4,heads=3,tokens=5)",
        "mix_heads(heads=3,m=4,n=5)",
        "patch_embedding(channels=3,dim=6,image=12,patch=4)",
        "pooled_head(classes=3,dim=6,tokens=5)",
        "position(dim=6,length=5,tokens=5)",
        "position(dim=6,length=9,tokens=5)",
        "reduction_block(height=6,in=4,out=8,width=8)",
        "relative_bias(heads=3,height=3,width=2,window=3)",
        "relative_bias(heads=2,height=2,width=3,window=5)",
        "relu(dim=6,tokens=5)",
        "relu_conv_block(height=5,in=4,kernel=3,out=6,stride=2,width=6)",
        "segment(dim=6,tokens=5)",
        "select_token(dim=6,tokens=5)",
        "silu(dim=6,tokens=5)",
        "softmax(heads=2,m=3,n=5)",
        "split_heads(head_dim=4,heads=3,parts=1,tokens=5)",
        "split_heads(head_dim=4,heads=3,parts=3,tokens=5)",
        "squeeze_excite(channels=8,height=3,reduced=4,width=4)",
        "talking_attention_block(dim=12,heads=3,height=3,key_dim=4,value_dim=6,width=2,window=4)",
        "tanh(dim=6)",
        "token_embedding(dim=6,length=9,tokens=5,vocabulary=11)",
        "unflatten_patches(dim=6,height=3,width=4)",
    )
)
BATCHED = tuple(spec for spec in EXAMPLES if spec.op != "kernel")
"""A kernel's shapes are whole: the batch is part of them, and no setting adds one."""
