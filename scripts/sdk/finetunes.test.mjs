// Fine-tuning with the public Node client against a running server, from the
// upload to the answer of the result. ATHANOR_BASE ends in /v1, ATHANOR_KEY is a key
// of it, ATHANOR_MODEL a model that can be trained.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const baseURL = process.env.ATHANOR_BASE;
const apiKey = process.env.ATHANOR_KEY;
const model = process.env.ATHANOR_MODEL;
assert.ok(baseURL && apiKey && model, 'ATHANOR_BASE, ATHANOR_KEY and ATHANOR_MODEL are needed');

process.env.TOGETHER_API_BASE_URL = baseURL;
const fetchWithoutDuplex = globalThis.fetch;
globalThis.fetch = (url, init) => fetchWithoutDuplex(url, init?.body?.pipe ? { ...init, duplex: 'half' } : init);
const Together = createRequire(import.meta.url)('together-ai');
const client = new Together({ apiKey, baseURL, maxRetries: 0 });

const dir = await mkdtemp(join(tmpdir(), 'athanor-finetunes-'));
const pause = (ms) => new Promise((r) => setTimeout(r, ms));

// upload sends n samples and waits for their validation.
async function upload(name, n) {
  const line = (i) => JSON.stringify({ messages: [{ role: 'user', content: `question ${i}` }, { role: 'assistant', content: 'teal' }] });
  const path = join(dir, name);
  await writeFile(path, Array.from({ length: n }, (_, i) => line(i)).join('\n') + '\n');
  for (let file = await client.files.upload(path, 'fine-tune'); ; file = await client.files.retrieve(file.id), await pause(20)) {
    if (file.processing_status === 'COMPLETED') return file.id;
    assert.ok(!['FAILED', 'INVALID_FORMAT'].includes(file.processing_status), JSON.stringify(file));
  }
}

test('together-ai: a fine-tuning job from the upload to the answer', async () => {
  const [training_file, validation_file] = [await upload('train.jsonl', 8), await upload('val.jsonl', 2)];

  const limits = await client.fineTuning.modelLimits({ model_name: model });
  assert.ok(limits.lora_training.max_rank > 0);
  const price = await client.fineTuning.estimatePrice({ training_file, model });
  assert.equal(price.estimation_available, true);
  const preview = await client.fineTuning.preview({ model, training_file, top_k: 1 });
  assert.equal(preview.rows[0].input_ids.length, preview.rows[0].labels.length);

  const job = await client.fineTuning.create({
    training_file, validation_file, model, n_epochs: 1, n_evals: 1, n_checkpoints: 2, learning_rate: 1e-3, batch_size: 4, packing: false,
    training_type: { type: 'Lora', lora_r: 8, lora_alpha: 16 }, suffix: 'sdk',
  });
  assert.match(job.id, /^ft-/);
  assert.ok((await client.fineTuning.list()).data.some((j) => j.id === job.id));

  let now;
  do {
    await pause(100);
    now = await client.fineTuning.retrieve(job.id);
  } while (!['completed', 'error', 'cancelled'].includes(now.status));
  const events = (await client.fineTuning.listEvents(job.id)).data;
  assert.equal(now.status, 'completed', JSON.stringify(events));
  const types = events.map((e) => e.type);
  for (const type of ['job_pending', 'job_start', 'tokenized_dataset_upload_complete', 'training_start', 'checkpoint_save', 'training_complete', 'job_complete'])
    assert.ok(types.includes(type), `${type} is not among ${types}`);

  const { metrics } = await client.fineTuning.listMetrics(job.id);
  assert.equal(metrics.filter((m) => 'train/loss' in m).length, 2);
  assert.ok(metrics.some((m) => 'eval/loss' in m));
  const checkpoints = (await client.fineTuning.listCheckpoints(job.id)).data;
  assert.ok(checkpoints.some((c) => /intermediate/i.test(c.checkpoint_type)), JSON.stringify(checkpoints));

  const answer = await client.chat.completions.create({ model: now.model_output_name, messages: [{ role: 'user', content: 'question 1' }], max_tokens: 4 });
  assert.equal(answer.choices.length, 1);

  await downloads(job.id);
  assert.ok((await client.fineTuning.delete(job.id, { force: false })).message);
});

// downloads fetches the weights in two parts and the tokenized dataset by its link.
async function downloads(ft_id) {
  const zstd = [0x28, 0xb5, 0x2f, 0xfd];
  const begin = async (response) => [...new Uint8Array(await response.arrayBuffer()).slice(0, 4)];
  const part = await client.fineTuning.content({ ft_id, checkpoint: 'adapter' }, { headers: { Range: 'bytes=0-1' } });
  assert.equal(part.status, 206);
  const size = Number(part.headers.get('content-range').split('/')[1]);
  const whole = await client.fineTuning.content({ ft_id, checkpoint: 'adapter' });
  assert.equal(whole.headers.get('content-type'), 'application/zstd');
  assert.equal(Number(whole.headers.get('content-length')), size);
  assert.deepEqual(await begin(whole), zstd);
  assert.deepEqual(await begin(await client.fineTuning.content({ ft_id })), zstd);

  const link = await client.fineTuning.retrieveTokenizedDataset(ft_id);
  const archive = await fetch(link.url);
  assert.equal(Number(archive.headers.get('content-length')), link.size);
  assert.deepEqual(await begin(archive), zstd);
}

test('together-ai: a job that is cancelled while it trains', async () => {
  const supported = await client.get('/fine-tunes/models/supported');
  assert.ok(supported.models.includes(model), JSON.stringify(supported));
  const training_file = await upload('long.jsonl', 50);
  const job = await client.fineTuning.create({ training_file, model, n_epochs: 1000, training_type: { type: 'Lora', lora_r: 8, lora_alpha: 16 } });
  const state = async () => (await client.fineTuning.retrieve(job.id)).status;
  while ((await state()) !== 'running') await pause(50);
  assert.equal((await client.fineTuning.cancel(job.id)).status, 'cancel_requested');
  while (!['cancelled', 'completed', 'error'].includes(await state())) await pause(50);
  const types = (await client.fineTuning.listEvents(job.id)).data.map((e) => e.type);
  assert.deepEqual(types.slice(-2), ['cancel_requested', 'job_stopped']);
  await assert.rejects(client.fineTuning.cancel(job.id), (e) => e.status === 400);
});

test('together-ai: what a job cannot be is refused by name', async () => {
  await assert.rejects(client.fineTuning.create({ training_file: 'file-none', model }), (e) => e.status >= 400 && e.status < 500);
  await assert.rejects(client.fineTuning.retrieve('ft-none'), (e) => e.status === 404);
  await assert.rejects(client.fineTuning.cancel('ft-none'), (e) => e.status === 404);
});
