"""Networks that turn pictures into the features that FID, KID and the likeness of faces are measured on."""
