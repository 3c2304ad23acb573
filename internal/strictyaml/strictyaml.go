// Package strictyaml reads the YAML that a person wrote for us: peer.yaml files and the testee's list of
// transports. A key that the type lacks is an error, since it is a typing mistake, and every error is one line.
package strictyaml

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Decode reads the one document of b into v, a pointer. Its errors say the line in b.
func Decode(b []byte, v any) error {
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	err := d.Decode(v)
	var wrong *yaml.TypeError
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty")
	case errors.As(err, &wrong):
		return oneLine(strings.Join(wrong.Errors, "; "))
	case err != nil:
		return oneLine(err.Error())
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
	}
	return nil
}

// oneLine makes an error of a text that may quote lines of the input.
func oneLine(text string) error { return errors.New(strings.Join(strings.Fields(text), " ")) }
