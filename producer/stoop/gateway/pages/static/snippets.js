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

const recordingOf = (entry) => entry.audio ?? "s3://bucket/recording.mp3";
const fileOf = (entry) => (entry.name || recordingOf(entry)).replace(/^.*[/]/, "");
const isSpeech = (entry) => ["transcribe", "translate"].includes(entry.skill);
const speechRoute = (entry) => (entry.skill === "translate" ? "translations" : "transcriptions");

/** The fields of OpenAI's forms for recordings; a translation has no language. */
function speechFields({ skill, fields, model }) {
  const { language, prompt, settings = {} } = fields;
  const { temperature } = settings;
  const given = { model: fields.model ?? model ?? "whisper", language: skill === "translate" ? undefined : language, prompt, temperature };
  return Object.entries(given).filter(([, value]) => value !== undefined);
}

function curl(entry) {
  if (isSpeech(entry)) {
    const forms = speechFields(entry).map(([name, value]) => ` \\\n  -F ${bash(`${name}=${value}`)}`);
    const head = `curl ${gateway()}/v1/audio/${speechRoute(entry)} \\\n  -H "Authorization: Bearer $STOOP_API_KEY"`;
    return `${head}${forms.join("")} \\\n  -F ${bash(`file=@${fileOf(entry)}`)}`;
  }
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
  const image = isSpeech(entry) ? `, audio=${python(recordingOf(entry))}` : imageOf(entry) ? `, ${python(imageOf(entry))}` : "";
  const of = model ? `job_model=${python(model)}` : "";
  return `from stoop import Client\n\nwith Client(${of}) as client:\n    print(client.run(${python(entry.skill)}${image}${named}))`;
}

function openai(entry) {
  if (isSpeech(entry)) {
    const given = speechFields(entry).map(([name, value]) => `${name}=${python(value)}, `);
    const made = `client.audio.${speechRoute(entry)}.create(${given.join("")}file=open(${python(fileOf(entry))}, "rb"))`;
    return `${openaiHead()}print(${made}.text)`;
  }
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
  return `${openaiHead()}answer = client.chat.completions.create(\n${lines.join("\n")}\n)\nprint(answer.choices[0].message.content)`;
}

const openaiHead = () =>
  `import os\nfrom openai import OpenAI\n\nclient = OpenAI(base_url=${python(`${gateway()}/v1`)}, api_key=os.environ["STOOP_API_KEY"])\n`;

function redis(entry) {
  const addresses = isSpeech(entry) ? { audio: recordingOf(entry) } : imageOf(entry) ? { image: imageOf(entry) } : {};
  const job = { v: 1, skill: entry.skill, ...addresses, ...entry.fields };
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
