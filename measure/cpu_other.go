//go:build !unix

package measure

import "time"

// CPUTime is not known here.
func CPUTime() (user, system time.Duration) { return 0, 0 }
