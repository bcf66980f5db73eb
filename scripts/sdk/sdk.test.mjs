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
    let text = '', finish = null, usage = null;
    for await (const chunk of await client.chat.completions.create({ ...question, stream: true })) {
      text += chunk.choices[0]?.delta?.content ?? '';
      finish = chunk.choices[0]?.finish_reason ?? finish;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(finish, whole.choices[0].finish_reason);
    assert.deepEqual(usage, whole.usage);
  });

  test(`${name}: the stream helper`, async () => {
    const api = client.chat.completions.stream ? client.chat.completions : client.beta?.chat?.completions;
    const stream = api.stream(question);
    const final = await stream.finalChatCompletion();
    assert.ok(final.choices[0].message.content.length > 0);
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

  test(`${name}: models`, async () => {
    const list = await client.models.list();
    const models = Array.isArray(list) ? list : list.data;
    assert.ok(models.some((m) => m.id === model), `${model} is listed`);
    if (name === 'openai') {
      assert.equal((await client.models.retrieve(model)).id, model);
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

  test(`${name}: an abandoned stream can be followed by another request`, async () => {
    const stream = await client.chat.completions.create({ ...question, max_tokens: 400, stream: true });
    for await (const _ of stream) break;
    stream.controller.abort();
    const answer = await client.chat.completions.create(question);
    assert.ok(answer.choices[0].message.content.length > 0);
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
