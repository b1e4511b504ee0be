/**
 * Names that stand for an image of a registry. The tags are those of the vendors' public images; whether
 * they still exist is found out by Modal when it builds one.
 */
const TEMPLATES: Readonly<Record<string, string>> = {
  python: 'python:3.12-slim-bookworm',
  pytorch: 'pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime',
  vllm: 'vllm/vllm-openai:v0.6.6',
  jupyter: 'quay.io/jupyter/pytorch-notebook:cuda12-python-3.12',
};

/** What a session names as its image, as a tag or as an image id of Modal. */
export const imageNamed = (name: string): string =>
  Object.hasOwn(TEMPLATES, name) ? (TEMPLATES[name] ?? name) : name;
