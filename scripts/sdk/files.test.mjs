// Files with the public Node clients against a running server: ATHANOR_BASE ends
// in /v1, ATHANOR_KEY is a key of it. The clients' own upload reads its base from
// TOGETHER_API_BASE_URL while it is loaded, and calls the global fetch with a
// stream but without "duplex", which Node then refuses; both are helped here.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import { createReadStream } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI from 'openai';

const baseURL = process.env.ATHANOR_BASE;
const apiKey = process.env.ATHANOR_KEY;
assert.ok(baseURL && apiKey, 'ATHANOR_BASE and ATHANOR_KEY are needed');

process.env.TOGETHER_API_BASE_URL = baseURL;
const fetchWithoutDuplex = globalThis.fetch;
globalThis.fetch = (url, init) => fetchWithoutDuplex(url, init?.body?.pipe ? { ...init, duplex: 'half' } : init);
const Together = createRequire(import.meta.url)('together-ai');
const client = new Together({ apiKey, baseURL, maxRetries: 0 });
const openai = new OpenAI({ apiKey, baseURL, maxRetries: 0 });

const dir = await mkdtemp(join(tmpdir(), 'athanor-files-'));
const line = (i) => JSON.stringify({ messages: [{ role: 'user', content: `question ${i}` }, { role: 'assistant', content: 'answer' }] });

async function ingested(id) {
  for (;;) {
    const file = await client.files.retrieve(id);
    if (['COMPLETED', 'INVALID_FORMAT', 'FAILED'].includes(file.processing_status)) return file;
    await new Promise((r) => setTimeout(r, 20));
  }
}

test('together-ai: upload, retrieve, list, content, delete', async () => {
  const path = join(dir, 'train.jsonl');
  await writeFile(path, Array.from({ length: 5000 }, (_, i) => line(i)).join('\n') + '\n');
  const answer = await client.files.upload(path, 'fine-tune');
  assert.equal(answer.object, 'file');
  assert.equal(answer.filename, 'train.jsonl');
  const file = await ingested(answer.id);
  assert.equal(file.processing_status, 'COMPLETED');
  assert.equal(file.validation_report.valid, true);
  assert.equal(file.validation_report.nlines, 5000);
  assert.equal(file.FileType, 'jsonl');
  assert.ok((await client.files.list()).data.some((f) => f.id === file.id));
  const content = await (await client.files.content(file.id)).text();
  assert.equal(content, await readFile(path, 'utf8'));
  const part = await client.files.content(file.id, { headers: { Range: 'bytes=2-9' } });
  assert.equal(part.status, 206);
  assert.equal(await part.text(), 'messages');
  const gone = await client.files.delete(file.id);
  assert.deepEqual(gone, { id: file.id, object: 'file', deleted: true });
  await assert.rejects(client.files.retrieve(file.id), Together.NotFoundError);
});

test('together-ai: a file with errors says what is wrong', async () => {
  const path = join(dir, 'bad.jsonl');
  await writeFile(path, `${line(0)}\n{"messages":[{"role":"user","content":"a"},{"content":"b"}]}\n`);
  const answer = await client.files.upload(path, 'fine-tune', false);
  const file = await ingested(answer.id);
  assert.equal(file.processing_status, 'INVALID_FORMAT');
  assert.equal(file.validation_report.error_type, 'INVALID_FORMAT');
  assert.equal(file.validation_report.error, 'Line 2: `messages[1]` must contain a `role` field');
  await client.files.delete(file.id);
});

test('openai: create, retrieve, list, content, delete', async () => {
  const path = join(dir, 'data.jsonl');
  await writeFile(path, line(1) + '\n');
  const file = await openai.files.create({ file: createReadStream(path), purpose: 'fine-tune' });
  assert.equal(file.filename, 'data.jsonl');
  assert.equal((await openai.files.retrieve(file.id)).bytes, file.bytes);
  const ids = [];
  for await (const f of openai.files.list({ limit: 1 })) ids.push(f.id);
  assert.ok(ids.includes(file.id));
  assert.equal(await (await openai.files.content(file.id)).text(), line(1) + '\n');
  assert.equal((await openai.files.delete(file.id)).deleted, true);
});

test('openai: errors are typed', async () => {
  const path = join(dir, 'data.jsonl');
  await assert.rejects(openai.files.create({ file: createReadStream(path), purpose: 'assistants' }), (err) => {
    assert.ok(err instanceof OpenAI.BadRequestError);
    assert.equal(err.param, 'purpose');
    return true;
  });
});
