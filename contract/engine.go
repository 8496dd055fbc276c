package contract

var engineCases []testCase
