// The ids that @huggingface/tokenizers gives, for tests/cli/tokenizers_npm_test.py: a JSON line per file, as
// `expedite tokenize --ids` writes them.
//
//   node encode.mjs NODE_MODULES TOKENIZER_FOLDER OUT < list of files, one a line
import { createWriteStream, readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [modules, folder, out] = process.argv.slice(2);
const path = `${modules}/@huggingface/tokenizers/dist/tokenizers.mjs`;
const { Tokenizer } = await import(pathToFileURL(path));
const read = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf8"));
const tokenizer = new Tokenizer(read("tokenizer.json"), read("tokenizer_config.json"));
const lines = createWriteStream(out);
for (const file of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  // Broken UTF-8 becomes U+FFFD here, as in every reader of text.
  const text = readFileSync(file).toString("utf8");
  const { ids } = text.length > 0 ? tokenizer.encode(text, { add_special_tokens: false }) : { ids: [] };
  lines.write(JSON.stringify({ file, ids }) + "\n");
}
lines.end();
