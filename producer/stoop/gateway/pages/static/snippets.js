// The request of the playground for other clients. What a user typed is quoted for each language.

const bash = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

const gateway = () => new URL(".", document.baseURI).href.replace(/\/$/, "");

/** Write a JSON value as Python. */
function python(value) {
  if (value === true) return "True";
  if (value === false) return "False";
  if (value === null) return "None";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${python(each)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}

/** The messages of a chat; pictures within them that no text has room for are named instead. */
function shortened(messages) {
  const short = (part) => (part.image_url?.url.startsWith("data:") ? { ...part, image_url: { url: "s3://bucket/picture.jpg" } } : part);
  return messages.map(({ role, content }) => ({ role, content: Array.isArray(content) ? content.map(short) : content }));
}

const imageOf = (entry) => entry.image ?? (entry.small ? "s3://bucket/picture.jpg" : null);

function curl(entry) {
  const asked = { ...entry.fields };
  const native = !["query", "caption", "detect", "point"].includes(entry.skill);
  if (imageOf(entry)) asked[native ? "image" : "image_url"] = imageOf(entry);
  if (native) asked.skill = entry.skill;
  const path = native ? "/v1/jobs" : `/v1/${entry.skill}`;
  const head = `curl ${gateway()}${path} \\\n  -H "Authorization: Bearer $STOOP_API_KEY" \\\n  -H "Content-Type: application/json" \\\n`;
  return `${head}  -d ${bash(JSON.stringify(asked))}`;
}

function client(entry) {
  const { settings, model, ...fields } = entry.fields;
  const given = Object.entries({ ...fields, ...(settings ? { settings } : {}) });
  const named = given.map(([name, value]) => `, ${name}=${python(value)}`).join("");
  const image = imageOf(entry) ? `, ${python(imageOf(entry))}` : "";
  const of = model ? `job_model=${python(model)}` : "";
  return `from stoop import Client\n\nwith Client(${of}) as client:\n    print(client.run(${python(entry.skill)}${image}${named}))`;
}

function openai(entry) {
  const { question, messages, settings = {}, model, ...more } = entry.fields;
  const { temperature, top_p, max_tokens, seed, ...others } = settings;
  const content = [{ type: "text", text: question ?? more.object ?? entry.skill }];
  if (imageOf(entry)) content.push({ type: "image_url", image_url: { url: imageOf(entry) } });
  const own = { ...(["query", "chat"].includes(entry.skill) ? {} : { skill: entry.skill }), ...more, ...others };
  const given = Object.entries({ temperature, top_p, max_tokens, seed }).filter(([, value]) => value !== undefined);
  const lines = [
    // the model that answered has a name even where the question named none
    `    model=${python(model ?? entry.model ?? "moondream3-preview")},`,
    `    messages=${python(messages ?? [{ role: "user", content }])},`,
    ...given.map(([name, value]) => `    ${name}=${python(value)},`),
    ...(Object.keys(own).length ? [`    extra_body=${python(own)},`] : []),
  ];
  const head = `import os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${python(`${gateway()}/v1`)}, api_key=os.environ["STOOP_API_KEY"])\n`;
  return `${head}answer = client.chat.completions.create(\n${lines.join("\n")}\n)\nprint(answer.choices[0].message.content)`;
}

function redis(entry) {
  const job = { v: 1, skill: entry.skill, ...(imageOf(entry) ? { image: imageOf(entry) } : {}), ...entry.fields };
  const lane = job.model ? `${job.model}:interactive` : "interactive";
  return `redis-cli XADD 'stoop:{0}:jobs:${lane}' '*' j ${bash(JSON.stringify(job))}`;
}

const LANGUAGES = { curl, Python: client, OpenAI: openai, "redis-cli": redis };

/** The ways in which this entry can be asked: pairs of a name and the text to copy. */
export function snippets(shown) {
  const { messages } = shown.fields;
  // the pictures of a chat are in its messages
  const entry = messages ? { ...shown, small: null, fields: { ...shown.fields, messages: shortened(messages) } } : shown;
  const known = Object.entries(LANGUAGES).filter(([name]) => name !== "OpenAI" || entry.skill !== "gaze");
  return known.map(([name, write]) => [name, write(entry)]);
}
