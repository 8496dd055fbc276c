// locco indexes for MongoDB
// loccoddl mongo -collection=locco-locks
module.exports = {
  async up(db) {
    await db.command({
      "dropIndexes": "locco-locks",
      "index": [
        "key_1",
        "expireAt_1"
      ]
    });
  },
  async down(db) {
    await db.command({
      "createIndexes": "locco-locks",
      "indexes": [
        {
          "key": {
            "key": 1
          },
          "name": "key_1",
          "unique": true
        },
        {
          "key": {
            "expireAt": 1
          },
          "name": "expireAt_1",
          "expireAfterSeconds": 0
        }
      ]
    });
  },
};
