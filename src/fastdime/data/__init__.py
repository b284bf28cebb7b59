"""Tables of images and the pixels in them."""
