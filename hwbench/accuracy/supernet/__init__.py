"""One set of weights for all networks of a space: elastic parts, of which every subnet uses the first rows and columns.

Weight entanglement (AutoFormer, Chen et al. 2021). One file per part; what is trained with them, and how subnets are searched,
it must not know.
"""
