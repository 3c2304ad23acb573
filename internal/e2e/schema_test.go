package e2e

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// cmdValid is "valid FILE": the file holds one JSON document, and it follows docs/result.schema.json.
// "valid lines FILE" wants a document in each line, with the last line's data following it.
func cmdValid(ts *testscript.TestScript, neg bool, args []string) {
	schema, err := jsonschema.NewCompiler().Compile(ts.Getenv("SCHEMA"))
	ts.Check(err)
	text, err := os.ReadFile(ts.MkAbs(args[len(args)-1]))
	ts.Check(err)
	document := string(text)
	if args[0] == "lines" {
		var event struct{ Data json.RawMessage }
		for line := range strings.Lines(document) {
			ts.Check(json.Unmarshal([]byte(line), &event))
		}
		document = string(event.Data)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(document))
	ts.Check(err)
	if err := schema.Validate(value); (err != nil) != neg {
		ts.Fatalf("%s: %v", args[len(args)-1], err)
	}
}
