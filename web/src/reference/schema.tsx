// A schema as a tree. Each level is resolved when it is opened, because schemas contain themselves.
import { useContext, useState } from "preact/hooks";
import { Reference, type Schema } from "./document";
import { Deprecated, Text } from "./text";
import { type Part, describeConstraints, describeType, followReference, hasParts, listParts } from "./words";

/** Type and constraints of a schema; all of them where there is no tree below. */
export function TypeWords({ schema, isRequired, isFull }: { schema: Schema; isRequired?: boolean; isFull?: boolean }) {
  const api = useContext(Reference);
  const constraints = describeConstraints(api, schema, 0, isFull).join("; ");
  return (
    <>
      <span class="type"><Text text={describeType(api, schema)} /></span>
      {isRequired && <span class="required">required</span>}
      {constraints !== "" && <span class="constraints"><Text text={constraints} /></span>}
    </>
  );
}

function PartRow({ part: { label, isField, isRequired, schema } }: { part: Part }) {
  const api = useContext(Reference);
  const [isOpen, setOpen] = useState(false);
  const { schema: found } = followReference(api, schema);
  const name = isField ? <code>{label}</code> : <em>{label}</em>;
  return (
    <li>
      <div class="part">
        {hasParts(api, schema)
          ? <button type="button" class="toggle" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>{name}</button>
          : <span class="leaf">{name}</span>}
        {found.deprecated === true && <Deprecated />}
        <TypeWords schema={schema} isRequired={isRequired} />
      </div>
      {found.description && <p class="part-text"><Text text={found.description} /></p>}
      {isOpen && <Parts schema={schema} />}
    </li>
  );
}

function Parts({ schema }: { schema: Schema }) {
  const parts = listParts(useContext(Reference), schema);
  return <ul class="parts">{parts.map((part, index) => <PartRow key={`${index} ${part.label}`} part={part} />)}</ul>;
}

/** The tree of a body. Its example is shown in full above, not among the constraints. */
export function SchemaTree({ schema: body }: { schema: Schema }) {
  const api = useContext(Reference);
  const schema = typeof body === "boolean" ? body : { ...body, examples: undefined };
  const { schema: found } = followReference(api, schema);
  return (
    <div class="schema">
      <div class="part"><TypeWords schema={schema} /></div>
      {found.description && <p class="part-text"><Text text={found.description} /></p>}
      {hasParts(api, schema) && <Parts schema={schema} />}
    </div>
  );
}
