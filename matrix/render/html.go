package render

import (
	"io"

	"muxperf/matrix/cell"
)

func HTML(w io.Writer, m *cell.Matrix) error { return nil }
