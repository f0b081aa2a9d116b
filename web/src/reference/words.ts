// Schemas in words: their type, their constraints, and what is inside of them. Code is between backticks, as in descriptions.
import type { ApiReference, Schema, SchemaObject } from "./document";

/** One thing inside of a schema: a field, an alternative, or another rule. */
export interface Part {
  label: string;
  isField: boolean;
  isRequired: boolean;
  schema: Schema;
}

interface Followed {
  schema: SchemaObject;
  /** The name in the document, if the schema is a reference. */
  name: string | null;
}

/** References that lead to themselves end here. */
const DEPTH_MAX = 8;
const EXAMPLE_MAX = 90;
/** Longer constraints of alternatives without fields are shown on demand, with a row for each. */
const INLINE_MAX = 80;

export function followReference(api: ApiReference, schema: Schema): Followed {
  let found: SchemaObject = typeof schema === "boolean" ? (schema ? {} : { not: {} }) : schema;
  let name: string | null = null;
  for (let depth = 0; found.$ref !== undefined && depth < DEPTH_MAX; depth += 1) {
    const { $ref, ...others } = found;
    name = $ref.split("/").pop() ?? null;
    found = { ...api.resolve<SchemaObject>($ref), ...others };
  }
  return { schema: found, name };
}

const typesOf = ({ type }: SchemaObject): string[] => (type === undefined ? [] : Array.isArray(type) ? type : [type]);
const isNull = (schema: SchemaObject) => schema.type === "null" || schema.const === null;

/** The alternatives that are not null, each followed. */
function listAlternatives(api: ApiReference, schema: SchemaObject): Schema[] {
  return (schema.anyOf ?? schema.oneOf ?? []).filter((one) => !isNull(followReference(api, one).schema));
}

/** The fields that have one value in this alternative, such as ` (kind TrendsQuery)`. */
function describeDiscriminator(api: ApiReference, alternative: Schema): string {
  const fields = Object.entries(followReference(api, alternative).schema.properties ?? {});
  const fixed = fields.filter(([, field]) => typeof field === "object" && typeof field.const === "string").map(([name, field]) => `${name} ${(field as SchemaObject).const}`);
  return fixed.length > 0 ? ` (${fixed.slice(0, 2).join(", ")})` : "";
}

function listAlternativeParts(api: ApiReference, schema: SchemaObject, depth: number): Part[] {
  const alternatives = listAlternatives(api, schema);
  const inner = alternatives.map((one) => listParts(api, one, depth + 1));
  if (inner.every((parts) => parts.length === 0) && describeAlternatives(api, schema, depth).join("; ").length <= INLINE_MAX) return [];
  if (alternatives.length === 1) return inner[0];
  return alternatives.map((one, index) => ({ label: `alternative ${index + 1}${describeDiscriminator(api, one)}`, isField: false, isRequired: false, schema: one }));
}

/** Rules that are schemas, in the order in which they are shown. */
const RULES: [string, string][] = [
  ["additionalProperties", "any other field"], ["propertyNames", "each name"], ["contains", "contains"], ["contentSchema", "the text contains"],
  ["not", "not"], ["if", "if it matches"], ["then", "then also"], ["else", "else also"],
];

function listRuleParts(api: ApiReference, schema: SchemaObject, depth: number): Part[] {
  const rule = (label: string, one: Schema): Part => ({ label, isField: false, isRequired: false, schema: one });
  const parts = RULES.flatMap(([keyword, label]) => {
    const one = schema[keyword] as Schema | undefined;
    if (typeof one !== "object" || (keyword === "not" && !hasParts(api, one, depth + 1))) return [];
    return [rule(label, one)];
  });
  for (const [pattern, one] of Object.entries((schema.patternProperties ?? {}) as Record<string, Schema>)) parts.push(rule(`fields that match ${pattern}`, one));
  for (const [name, one] of Object.entries((schema.dependentSchemas ?? {}) as Record<string, Schema>)) parts.push(rule(`if ${name} is present`, one));
  for (const one of schema.allOf ?? []) parts.push(rule("all of", one));
  return parts;
}

/** What is inside of a schema, one level deep. The items of a list, and a single alternative beside null, stand for themselves. */
export function listParts(api: ApiReference, one: Schema, depth = 0): Part[] {
  if (depth > DEPTH_MAX) return [];
  const { schema } = followReference(api, one);
  const parts: Part[] = Object.entries(schema.properties ?? {}).map(([label, field]) => ({
    label, isField: true, isRequired: schema.required?.includes(label) ?? false, schema: field,
  }));
  parts.push(...listRuleParts(api, schema, depth));
  parts.push(...listAlternativeParts(api, schema, depth));
  ((schema.prefixItems ?? []) as Schema[]).forEach((item, index) => parts.push({ label: `item ${index + 1}`, isField: false, isRequired: false, schema: item }));
  if (schema.items !== undefined && hasParts(api, schema.items, depth + 1)) {
    if (parts.length === 0) return listParts(api, schema.items, depth + 1);
    parts.push({ label: "each item", isField: false, isRequired: false, schema: schema.items });
  }
  return parts;
}

export const hasParts = (api: ApiReference, schema: Schema, depth = 0): boolean => listParts(api, schema, depth).length > 0;

/** `string`, `FeatureFlag or null`, `array of integer`, ... */
export function describeType(api: ApiReference, one: Schema, depth = 0): string {
  const { schema, name } = followReference(api, one);
  if (one === false) return "nothing";
  if ("const" in schema) return formatCode(schema.const);
  const types = typesOf(schema);
  if (name !== null && (depth > DEPTH_MAX || types.includes("object") || schema.properties)) return [name, ...types.filter((type) => type !== "object")].join(" or ");
  if (types.length > 0) return types.map((type) => (type === "array" && schema.items !== undefined ? `array of ${describeItems(api, schema.items, depth)}` : type)).join(" or ");
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives) {
    const words = [...new Set(alternatives.map((alternative) => describeType(api, alternative, depth + 1)))];
    return words.length > 5 ? `one of ${words.length} alternatives` : words.join(" or ");
  }
  if (schema.allOf) return schema.allOf.map((part) => describeType(api, part, depth + 1)).join(" and ");
  if (schema.enum) return [...new Set(schema.enum.map((value) => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value)))].join(" or ");
  return schema.properties ? "object" : "any value";
}

function describeItems(api: ApiReference, items: Schema, depth: number): string {
  const words = describeType(api, items, depth + 1);
  return words.includes(" or ") ? `(${words})` : words;
}

/** A value between backticks, or without them if it contains one. Texts have quotes only where they would be invisible otherwise. */
function formatCode(value: unknown): string {
  const text = typeof value === "string" && value.trim() === value && value !== "" ? value : JSON.stringify(value);
  return text.includes("`") ? text : `\`${text}\``;
}

function describeRange(low: unknown, high: unknown, unit: string): string[] {
  const suffix = unit && ` ${low === undefined && high === 1 ? unit.replace(/s$/, "") : unit}`;
  if (low === undefined && high === undefined) return [];
  if (low === high) return [`exactly ${low}${suffix}`];
  if (high === undefined) return [`at least ${low}${suffix}`];
  return low === undefined ? [`at most ${high}${suffix}`] : [`${low} to ${high}${suffix}`];
}

function describeItemConstraints(api: ApiReference, { items }: SchemaObject, depth: number): string[] {
  if (items === undefined || depth > DEPTH_MAX || hasParts(api, items)) return [];
  const words = describeConstraints(api, items, depth + 1);
  return words.length > 0 ? [`each item ${words.join(", ")}`] : [];
}

/** Constraints of alternatives without fields, which have no rows of their own. */
function describeAlternatives(api: ApiReference, schema: SchemaObject, depth: number): string[] {
  const alternatives = listAlternatives(api, schema);
  if (depth > DEPTH_MAX || alternatives.some((one) => followReference(api, one).schema.properties)) return [];
  return alternatives.flatMap((one) => {
    const words = describeConstraints(api, one, depth + 1, true).join(", ");
    return words === "" ? [] : [alternatives.length === 1 ? words : `${describeType(api, one)}: ${words}`];
  });
}

/** Everything that a value must fulfil beside its type and its parts; also the parts that are alternatives without fields if `isFull`. */
export function describeConstraints(api: ApiReference, one: Schema, depth = 0, isFull = false): string[] {
  const { schema } = followReference(api, one);
  const words: string[] = [];
  const add = (keyword: string, format: (value: unknown) => string) => {
    if (schema[keyword] !== undefined) words.push(format(schema[keyword]));
  };
  if (schema.enum) words.push(`one of ${schema.enum.map(formatCode).join(", ")}`);
  words.push(...describeRange(schema.minimum, schema.maximum, ""));
  add("exclusiveMinimum", (value) => `more than ${value}`);
  add("exclusiveMaximum", (value) => `less than ${value}`);
  add("multipleOf", (value) => `a multiple of ${value}`);
  words.push(...describeRange(schema.minLength, schema.maxLength, "characters"));
  words.push(...describeRange(schema.minItems, schema.maxItems, "items"));
  words.push(...describeRange(schema.minProperties, schema.maxProperties, "fields"));
  if (schema.uniqueItems) words.push("each item once");
  add("format", (value) => `format ${formatCode(value)}`);
  add("pattern", (value) => `matches ${formatCode(value)}`);
  add("contentMediaType", (value) => (value === "application/json" ? "a JSON text" : `a text of type ${formatCode(value)}`));
  words.push(...describeItemConstraints(api, schema, depth));
  if (isFull || !hasParts(api, schema)) words.push(...describeAlternatives(api, schema, depth));
  const { not } = schema as { not?: SchemaObject };
  if (not?.enum ?? (not && "const" in not)) words.push(`not ${(not!.enum ?? [not!.const]).map(formatCode).join(", ")}`);
  if (schema.required && !schema.properties) words.push(`requires ${schema.required.map(formatCode).join(", ")}`);
  if (schema.additionalProperties === false && schema.properties) words.push("no other fields");
  add("default", (value) => `default ${formatCode(value)}`);
  if (schema.readOnly) words.push("read-only");
  if (schema.writeOnly) words.push("write-only");
  const example = (schema.examples as unknown[] | undefined)?.[0];
  if (example !== undefined && JSON.stringify(example).length <= EXAMPLE_MAX) words.push(`for example ${formatCode(example)}`);
  return words;
}
