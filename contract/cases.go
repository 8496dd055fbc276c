package contract

import "slices"

// cases returns every case; each file has those of its subject.
func cases() []testCase {
	return slices.Concat(
		declaredCases,
		basicCases,
		extendCases,
		againCases,
		expiryCases,
		leftCases,
		keyCases,
		fencingCases,
		concurrencyCases,
		watcherCases,
		watchersCases,
		transferCases,
		manyAcquireCases,
		manyExtendCases,
		contextCases,
		brokenCases,
		engineCases,
	)
}
