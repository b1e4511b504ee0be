"""A picture from a sentence, by SDXL Turbo: vmux cp @last:image.png ."""

import sys

import torch
from diffusers import AutoPipelineForText2Image

pipe = AutoPipelineForText2Image.from_pretrained(
    "stabilityai/sdxl-turbo", torch_dtype=torch.float16, variant="fp16"
).to("cuda")
image = pipe(prompt=sys.argv[1], num_inference_steps=1, guidance_scale=0.0).images[0]
image.save("image.png")
print("image.png")
