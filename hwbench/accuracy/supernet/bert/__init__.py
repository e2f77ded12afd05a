"""A pre-trained BERT-family encoder as a supernet: heads, feed-forward width and depth are slices of its own weights.

EFTNAS (Munoz et al. 2024). Files of their own beside the parts for images: texts have a length and a mask, and weights come
from a folder that `transformers` wrote. What a subnet costs, and who searches them, it must not know.
"""
