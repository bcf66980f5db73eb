// The public Node clients against a running server: ATHANOR_BASE ends in /v1,
// ATHANOR_KEY is a key of it, ATHANOR_MODEL a chat model.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import OpenAI from 'openai';

const require = createRequire(import.meta.url);
const Together = require('together-ai');

const baseURL = process.env.ATHANOR_BASE;
const apiKey = process.env.ATHANOR_KEY;
const model = process.env.ATHANOR_MODEL;
assert.ok(baseURL && apiKey && model, 'ATHANOR_BASE, ATHANOR_KEY and ATHANOR_MODEL are needed');

const clients = {
  'together-ai': { client: new Together({ apiKey, baseURL, maxRetries: 0 }), errors: Together, make: (o) => new Together({ baseURL, maxRetries: 0, ...o }) },
  openai: { client: new OpenAI({ apiKey, baseURL, maxRetries: 0 }), errors: OpenAI, make: (o) => new OpenAI({ baseURL, maxRetries: 0, ...o }) },
};
const question = { model, messages: [{ role: 'user', content: 'What is Athanor?' }], temperature: 0, max_tokens: 48 };
// The built-in model may not end this text, so that it lasts.
const long = { model, prompt: 'Tell me a story.', temperature: 0, max_tokens: 900, logit_bias: { 2045: -100, 2047: -100 } };

// busy is the number of requests that hold the model's worker.
async function busy() {
  const text = await (await fetch(new URL('/metrics', baseURL))).text();
  const line = text.split('\n').find((l) => l.startsWith(`athanor_worker_inflight{model="${model}"}`));
  assert.ok(line, 'the metric of the worker is there');
  return Number(line.split(' ')[1]);
}

// becomes polls until the worker has so many requests.
async function becomes(n, limit = 5000) {
  const end = Date.now() + limit;
  let got;
  while ((got = await busy()) !== n) {
    assert.ok(Date.now() < end, `${got} requests hold the worker after ${limit} ms, want ${n}`);
    await new Promise((done) => setTimeout(done, 10));
  }
}

// said collects a stream of chat or text.
async function said(stream) {
  const out = { text: '', finish: null, usage: null, chunks: [] };
  for await (const chunk of stream) {
    out.chunks.push(chunk);
    const c = chunk.choices[0];
    out.text += c?.delta?.content ?? '';
    out.finish = c?.finish_reason ?? out.finish;
    out.usage = chunk.usage ?? out.usage;
  }
  return out;
}

for (const [name, { client, errors, make }] of Object.entries(clients)) {
  test(`${name}: chat`, async () => {
    const answer = await client.chat.completions.create(question);
    assert.equal(answer.object, 'chat.completion');
    assert.equal(answer.choices[0].message.role, 'assistant');
    assert.ok(answer.choices[0].message.content.length > 0);
    assert.ok(['stop', 'length'].includes(answer.choices[0].finish_reason));
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  });

  test(`${name}: a stream says the same as the whole answer`, async () => {
    const whole = await client.chat.completions.create(question);
    const stream = await said(await client.chat.completions.create({ ...question, stream: true }));
    assert.equal(stream.text, whole.choices[0].message.content);
    assert.equal(stream.finish, whole.choices[0].finish_reason);
    assert.deepEqual(stream.usage, whole.usage);
    assert.ok(stream.chunks.every((c) => c.id === stream.chunks[0].id && c.object === 'chat.completion.chunk' && c.choices.length === 1));
  });

  test(`${name}: the stream helper`, async () => {
    const api = client.chat.completions.stream ? client.chat.completions : client.beta?.chat?.completions;
    const stream = api.stream({ ...question, stream: true });
    let text = '';
    stream.on('content', (delta) => { text += delta; });
    const final = await stream.finalChatCompletion();
    const whole = await client.chat.completions.create(question);
    assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
    assert.equal(final.choices[0].finish_reason, whole.choices[0].finish_reason);
    assert.equal(final.choices[0].message.role, 'assistant');
    assert.equal(text, final.choices[0].message.content);
  });

  test(`${name}: a limit and stop strings`, async () => {
    const short = await client.chat.completions.create({ ...question, max_tokens: 3 });
    assert.equal(short.choices[0].finish_reason, 'length');
    assert.equal(short.usage.completion_tokens, 3);
    const whole = (await client.chat.completions.create(question)).choices[0].message.content;
    const stop = whole.slice(10, 14);
    const want = whole.slice(0, whole.indexOf(stop));
    const stopped = await client.chat.completions.create({ ...question, stop: ['\u0000never', stop] });
    assert.equal(stopped.choices[0].message.content, want);
    assert.equal(stopped.choices[0].finish_reason, 'stop');
    const stream = await said(await client.chat.completions.create({ ...question, stop: [stop], stream: true }));
    assert.equal(stream.text, want, 'nothing of the stop string is streamed');
    assert.equal(stream.finish, 'stop');
  });

  test(`${name}: usage on its own, when asked for`, async () => {
    const ask = { ...question, max_tokens: 5, stream: true, stream_options: { include_usage: true } };
    const { chunks } = await said(await client.chat.completions.create(ask));
    const last = chunks.at(-1);
    assert.deepEqual(last.choices, []);
    assert.equal(last.usage.completion_tokens, 5);
    assert.equal(chunks.filter((c) => c.choices.length === 0).length, 1);
  });

  test(`${name}: a conversation`, async () => {
    const messages = [
      { role: 'system', content: 'Answer in one word.' }, { role: 'user', content: 'What is the capital of France?' },
      { role: 'assistant', content: 'Paris' }, { role: 'user', content: 'And of Italy?' },
    ];
    const a = await client.chat.completions.create({ ...question, messages });
    const b = await client.chat.completions.create({ ...question, messages: messages.slice(-1) });
    assert.ok(a.choices[0].message.content.length > 0);
    assert.ok(a.usage.prompt_tokens > b.usage.prompt_tokens, 'every message counts');
  });

  test(`${name}: several choices, seeds and log-probabilities`, async () => {
    const ask = { ...question, temperature: 1, n: 2, seed: 7, max_tokens: 12, logprobs: name === 'openai' ? true : 1 };
    if (name === 'openai') ask.top_logprobs = 2;
    const a = await client.chat.completions.create(ask);
    const b = await client.chat.completions.create(ask);
    assert.equal(a.choices.length, 2);
    assert.deepEqual(a.choices.map((c) => c.message.content), b.choices.map((c) => c.message.content));
    const lp = a.choices[0].logprobs;
    assert.equal(lp.tokens.length, lp.token_logprobs.length);
    assert.ok(lp.content[0].top_logprobs.length >= 1);
    const { chunks } = await said(await client.chat.completions.create({ ...ask, n: 1, stream: true }));
    const first = chunks[0].choices[0].logprobs;
    assert.equal(name === 'openai' ? first.content[0].logprob : first, lp.token_logprobs[0]);
  });

  test(`${name}: completions`, async () => {
    const prompt = 'Once upon a time';
    const whole = await client.completions.create({ model, prompt, temperature: 0, max_tokens: 16 });
    assert.ok(whole.choices[0].text.length > 0);
    let text = '';
    for await (const chunk of await client.completions.create({ model, prompt, temperature: 0, max_tokens: 16, stream: true })) {
      text += chunk.choices[0]?.text ?? '';
    }
    assert.equal(text, whole.choices[0].text);
  });

  test(`${name}: text of any script`, async () => {
    const prompt = 'naïve 猫 🔥 \u{1F469}\u200D\u{1F680} \u2028 "\\" <&>';
    const ask = { model, prompt, temperature: 1.5, seed: 11, max_tokens: 40, echo: true };
    const whole = await client.completions.create(ask);
    assert.equal(whole.prompt[0].text, prompt);
    let text = '';
    for await (const chunk of await client.completions.create({ ...ask, stream: true })) {
      text += chunk.choices[0]?.text ?? '';
    }
    assert.equal(text, whole.choices[0].text);
    const chat = await client.chat.completions.create({ ...question, messages: [{ role: 'user', content: prompt }], echo: true, max_tokens: 1 });
    assert.ok(chat.prompt[0].text.includes(prompt));
  });

  test(`${name}: models`, async () => {
    const list = await client.models.list();
    const models = Array.isArray(list) ? list : list.data;
    assert.ok(models.some((m) => m.id === model), `${model} is listed`);
    if (name === 'openai') {
      assert.equal((await client.models.retrieve(model)).id, model);
      const ids = [];
      for await (const m of client.models.list()) ids.push(m.id);
      assert.ok(ids.includes(model));
    }
  });

  test(`${name}: errors are typed`, async () => {
    const rejects = (promise, Type, check) => assert.rejects(promise, (err) => {
      assert.ok(err instanceof Type, `${err.constructor.name} is not ${Type.name}: ${err.message}`);
      check?.(err);
      return true;
    });
    await rejects(make({ apiKey: 'wrong' }).chat.completions.create(question), errors.AuthenticationError, (e) => assert.equal(e.status, 401));
    await rejects(client.chat.completions.create({ ...question, model: 'no/such-model' }), errors.NotFoundError, (e) => {
      assert.equal((e.error?.error ?? e.error).code, 'model_not_found');
    });
    await rejects(client.chat.completions.create({ ...question, max_tokens: -1 }), errors.BadRequestError, (e) => {
      assert.equal((e.error?.error ?? e.error).param, 'max_tokens');
    });
    await rejects(client.chat.completions.create({ ...question, tools: [{ type: 'function', function: { name: 'f' } }] }), errors.BadRequestError, (e) => {
      assert.equal((e.error?.error ?? e.error).param, 'tools');
    });
    await rejects(client.chat.completions.create({ ...question, messages: [{ role: 'user', content: 'word '.repeat(5000) }] }), errors.BadRequestError, (e) => {
      assert.equal((e.error?.error ?? e.error).code, 'context_length_exceeded');
    });
    await rejects(client.get('/_stainless_unknown_path'), errors.NotFoundError, (e) => assert.equal((e.error?.error ?? e.error).code, 'unknown_url'));
  });

  test(`${name}: a body that is too large`, async () => {
    const messages = [{ role: 'user', content: 'x'.repeat(17 << 20) }];
    await assert.rejects(client.chat.completions.create({ ...question, messages }), (err) => {
      assert.ok(err instanceof errors.APIError);
      assert.equal(err.status, 413);
      assert.equal((err.error?.error ?? err.error).code, 'request_too_large');
      return true;
    });
  });

  test(`${name}: the headers of a response`, async () => {
    const { response } = await client.chat.completions.create({ ...question, max_tokens: 1 }).withResponse();
    assert.match(response.headers.get('x-request-id'), /^req-/);
    assert.equal(response.headers.get('x-ratelimit-reset'), '0');
    await assert.rejects(client.chat.completions.create({ ...question, n: 0 }), (err) => {
      const headers = err.headers;
      assert.match(headers.get?.('x-request-id') ?? headers['x-request-id'], /^req-/);
      assert.equal(headers.get?.('x-ratelimit-reset') ?? headers['x-ratelimit-reset'], '0');
      return true;
    });
  });

  test(`${name}: requests at the same time`, async () => {
    const alone = await client.chat.completions.create(question);
    const answers = await Promise.all(Array.from({ length: 8 }, async (_, i) => (i % 2
      ? (await said(await client.chat.completions.create({ ...question, stream: true }))).text
      : (await client.chat.completions.create(question)).choices[0].message.content)));
    for (const text of answers) assert.equal(text, alone.choices[0].message.content);
  });

  test(`${name}: an abandoned stream frees its place`, async () => {
    await becomes(0);
    const stream = await client.completions.create({ ...long, stream: true });
    for await (const _ of stream) {
      assert.equal(await busy(), 1);
      break;
    }
    stream.controller.abort();
    await becomes(0);
    const answer = await client.chat.completions.create(question);
    assert.ok(answer.choices[0].message.content.length > 0);
  });

  test(`${name}: an abandoned request frees its place`, async () => {
    await becomes(0);
    const controller = new AbortController();
    const asked = assert.rejects(client.completions.create(long, { signal: controller.signal }), errors.APIUserAbortError);
    await becomes(1);
    controller.abort();
    await asked;
    await becomes(0);
  });

  test(`${name}: a client that waits no longer`, async () => {
    await becomes(0);
    await assert.rejects(make({ apiKey, timeout: 100 }).completions.create(long), errors.APIConnectionTimeoutError);
    await becomes(0);
  });
}

test('together-ai: endpoints and their filters', async () => {
  const { client } = clients['together-ai'];
  const all = await client.endpoints.list();
  const one = all.data.find((e) => e.model === model);
  assert.equal(one.type, 'serverless');
  assert.equal(one.state, 'STARTED');
  assert.match(one.id, /^endpoint-/);
  assert.equal((await client.endpoints.list({ type: 'dedicated' })).data.length, 0);
});
