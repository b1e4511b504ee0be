"""A conversation in the terminal: vmux attach @last, or vmux exec -t @last -- python3 gpu/chat.py"""

import sys

from transformers import pipeline

chat = pipeline("text-generation", "Qwen/Qwen2.5-7B-Instruct", torch_dtype="auto", device_map="cuda")
messages = []
print("say something; Ctrl-D ends it", flush=True)
for line in sys.stdin:
    messages.append({"role": "user", "content": line.strip()})
    messages = chat(messages, max_new_tokens=512)[0]["generated_text"]
    print(messages[-1]["content"], flush=True)
