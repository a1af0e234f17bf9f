"""Makes the files beside it, as SciPy and Pillow write them: python3 make.py. Value (image, channel, row, column) of an image is
101 image + 37 channel + 11 row + 3 column."""
import numpy as np
import scipy.io
from PIL import Image

image, channel, row, column = np.indices((3, 3, 4, 5))
pixels = (101 * image + 37 * channel + 11 * row + 3 * column).astype(np.uint8)
arrays = {"X": pixels.transpose(2, 3, 1, 0), "y": np.array([[10], [3], [9]], np.uint8)}
scipy.io.savemat("plain.mat", arrays)
scipy.io.savemat("compressed.mat", arrays, do_compression=True)
Image.fromarray(pixels[2].transpose(1, 2, 0)).save("2.png")
Image.fromarray(pixels[2, 0]).save("2-grey.png")
