import { gpuOf } from '../src/drivers/gpus';
import { imageNamed } from '../src/drivers/templates';

describe('What sessions name, as Modal names it', () => {
  it.each([
    ['t4', 'T4'],
    ['T4:1', 'T4'],
    ['a10g:4', 'A10:4'],
    ['H100!:8', 'H100!:8'],
    ['b200+', 'B200+'],
    ['a100-80gb:2', 'A100-80GB:2'],
  ])('a GPU: %s', (asked, named) => {
    expect(gpuOf(asked)).toBe(named);
  });

  it.each(['', ':', 'T4:', 'T4:0', 'T4:9', 'A10G:5', 'T4:1000', 'T4 ', 'constructor', 'any'])(
    'no GPU: "%s"',
    (asked) => {
      expect(() => gpuOf(asked)).toThrow(/choose one of T4, L4, A10, .*|has 1 to \d of/);
    },
  );

  it('an image: templates by their vendors’ names, anything else as it is', () => {
    expect(imageNamed('python')).toMatch(/^python:3/);
    for (const template of ['pytorch', 'vllm', 'jupyter'])
      expect(imageNamed(template)).toMatch(new RegExp(`^[\\w./]*${template}[\\w/-]*:\\S+$`));
    for (const image of ['debian:12', 'im-123', 'toString']) expect(imageNamed(image)).toBe(image);
  });
});
