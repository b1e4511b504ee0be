"""Speech to text: vmux cp speech.wav @last:, then vmux exec @last -- python3 gpu/transcribe.py speech.wav"""

import sys

from faster_whisper import WhisperModel

model = WhisperModel("large-v3", device="cuda", compute_type="float16")
if len(sys.argv) < 2:
    print("the model is loaded; give a sound file")
else:
    for segment in model.transcribe(sys.argv[1])[0]:
        print(f"[{segment.start:.1f} - {segment.end:.1f}] {segment.text.strip()}", flush=True)
