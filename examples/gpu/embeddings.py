"""How near sentences are to each other in meaning."""

from sentence_transformers import SentenceTransformer

sentences = ["The session outlives the sandbox.", "Sandboxes come and go.", "Bread needs yeast."]
model = SentenceTransformer("BAAI/bge-base-en-v1.5", device="cuda")
vectors = model.encode(sentences, normalize_embeddings=True)
for row in vectors @ vectors.T:
    print("  ".join(f"{value:.2f}" for value in row))
