// The personal API key of this tab: in its sessionStorage, and nowhere else. The console and the API reference share it.
const KEY_ITEM = "pennon.key";

export const storedKey = () => sessionStorage.getItem(KEY_ITEM);

export const storeKey = (secret: string) => sessionStorage.setItem(KEY_ITEM, secret);

export const removeStoredKey = () => sessionStorage.removeItem(KEY_ITEM);
