package cell

import (
	"bytes"
	"testing"
)

func of(state State, rates ...float64) *Cell {
	c := &Cell{Key: Key{Client: "a", Server: "b", Stack: "noise+yamux", Streams: 1, Connections: 1}}
	for _, r := range rates {
		c.Reps = append(c.Reps, Rep{State: OK, Goodput: r, Received: 1e9, ClientCPU: 0.5, ServerCPU: 0.25})
	}
	if state != "" {
		c.Reps = append(c.Reps, Rep{State: state, Reason: "because"})
	}
	c.Summarise()
	return c
}

func TestSummaries(t *testing.T) {
	for _, tc := range []struct {
		name  string
		cell  *Cell
		state State
	}{
		{"steady", of("", 100, 101, 102), OK},
		{"wide", of("", 50, 100, 150), Noisy},
		{"one failure among good ones", of(Failed, 100, 101), Failed},
		{"nothing but failures", of(DNF), DNF},
	} {
		if tc.cell.State != tc.state {
			t.Errorf("%s: %s, want %s", tc.name, tc.cell.State, tc.state)
		}
	}
	if c := of("", 3, 1, 2); c.Median != 2 || c.Low != 1 || c.High != 3 || c.ClientCPU != 0.5 || c.ServerCPU != 0.25 {
		t.Errorf("%+v", c)
	}
}

func matrix(cells ...*Cell) *Matrix { return &Matrix{SchemaVersion: SchemaVersion, Cells: cells} }

func TestCompare(t *testing.T) {
	steady := []float64{100, 101, 102, 103, 104, 105}
	slower := []float64{80, 81, 82, 83, 84, 85}
	old, now := matrix(of("", steady...)), matrix(of("", slower...))
	all := Compare(old, now)
	if len(all) != 1 || !all[0].Significant || all[0].Ratio > 0.82 || Worst(old, now, all) < 0.15 {
		t.Errorf("a loss of a fifth: %+v, worst %.3f", all, Worst(old, now, all))
	}
	all = Compare(old, old)
	if all[0].Significant || all[0].Ratio != 1 || Worst(old, old, all) != 0 {
		t.Errorf("against itself: %+v", all)
	}
	broken := matrix(of(Failed))
	if all = Compare(old, broken); all[0].Note == "" || Worst(old, broken, all) != 1 {
		t.Errorf("a cell that broke: %+v", all)
	}
}

func TestRoundTrip(t *testing.T) {
	var b bytes.Buffer
	if err := matrix(of("", 1, 2, 3)).Write(&b); err != nil {
		t.Fatal(err)
	}
	m, err := Read(&b)
	if err != nil || len(m.Cells) != 1 || m.Cells[0].Median != 2 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := Read(bytes.NewBufferString(`{"schema_version":99}`)); err == nil {
		t.Error("a version from the future was read")
	}
}
